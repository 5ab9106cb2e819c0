"""The data sets: files checked as they are read, columns and rows dealt out."""
