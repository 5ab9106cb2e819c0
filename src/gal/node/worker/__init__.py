"""Computing with an organization's own data and model, in a process of its own."""
