"""Compare finished runs: statistics, verdicts, and a report as text, HTML, LaTeX and CSV."""
