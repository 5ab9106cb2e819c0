"""What a label holder's own applications reach over HTTP: one app, its token, and how
concurrent requests share an exchange.
"""
