"""Kept models at work: metrics of a run anew, scores of lists, also of another program."""
