"""Carriers: what takes messages from a label holder to organizations and back where no node listens."""
