"""Finished runs compared: statistics, verdicts, and one report as text, page, LaTeX and CSV."""
