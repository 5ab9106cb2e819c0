"""What people would use instead of GAL, on the same rows and columns: ``gal bench peers``."""
