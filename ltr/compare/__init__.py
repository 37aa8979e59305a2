"""Finished runs as systems, and the verdicts between them."""
