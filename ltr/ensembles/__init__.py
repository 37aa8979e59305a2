"""Ensembles of finished runs: which members, what weights, and the run folder they leave."""
