"""The one look of all plots and pages, and the figures that ``scripts/figures.py`` draws."""
