"""The running node: both roles put together, and the commands that it takes."""
