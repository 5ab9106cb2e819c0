"""The running node: both roles, its commands, its web app, carriers other than gRPC."""
