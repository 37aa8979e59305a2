"""Tables that compare runs with each other and with published numbers."""
