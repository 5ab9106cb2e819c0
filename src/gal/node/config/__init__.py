"""What an organization allows and agrees to: node.toml, its policy, terms and invitations of tasks."""
