"""A trained model in front of others: as files for search engines, and explained."""
