"""Runs: build, identify, train, test and record one; resume it; sweeps and ensembles of runs."""
