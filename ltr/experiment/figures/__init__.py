"""Figures and tables of the papers, computed with this project's own functions."""
