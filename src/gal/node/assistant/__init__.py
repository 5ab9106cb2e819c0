"""The assisting organization: dials out, checks requests, replies."""
