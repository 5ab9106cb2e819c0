"""What an operator does with a home folder: init, invite and join, status, doctor."""
