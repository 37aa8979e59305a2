"""Build, identify, train, test, record and resume a run; sweeps of runs; prepare a data set."""
