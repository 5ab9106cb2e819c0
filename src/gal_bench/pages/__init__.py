"""Outcomes as tables, findings and pages."""
