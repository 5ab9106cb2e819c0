"""The running node: both roles put together, its commands, its web app, carriers other than gRPC."""
