"""Commands that list and check losses, metrics and models, one's own too."""
