"""Build, identify, train, test, record and resume a run; sweep over runs; prepare a data set."""
