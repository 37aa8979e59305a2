"""Tables of runs beside published numbers: planned, run, compared and written."""
