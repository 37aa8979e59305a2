"""One run and what it leaves: built, identified, trained and kept; sweeps of runs."""
