"""What an organization wrote into node.toml: its settings and its policy."""
