"""The label holder: gathers organizations, learns round by round, predicts, protects its labels."""
