"""Batteries of properties over losses, metrics and models, one's own too, and their commands."""
