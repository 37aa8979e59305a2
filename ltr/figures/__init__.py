"""The figures of the papers, and what every plot is drawn with."""
