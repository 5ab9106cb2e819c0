"""How commands speak: tables, progress, and what was perhaps meant."""
