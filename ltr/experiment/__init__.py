"""One run and what it leaves: built, identified, trained, kept, evaluated; sweeps of runs."""
