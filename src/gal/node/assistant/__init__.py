"""The assisting organization: dials out, checks what it is asked, answers."""
