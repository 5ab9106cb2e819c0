"""What turns users' tables into a task, and drives it: options, labels, columns, organizations, drivers."""
