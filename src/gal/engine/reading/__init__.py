"""How tables are written in files: text, spreadsheets, dates; the same for nodes and ``gal simulate``."""
