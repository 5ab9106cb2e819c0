"""What organizations know only together: crossed residuals, who is asked for them, what prediction needs."""
