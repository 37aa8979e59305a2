"""The look of plots and pages, and tables as LaTeX."""
