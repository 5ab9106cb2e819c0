"""What ``benchmarks/privacy.py`` measures, by role; ``tables.py`` has what all of it is measured on."""
