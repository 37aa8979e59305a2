"""The errors a user can mend. Each message is one line and ends with the remedy."""


class LTRError(Exception):
    """Something a user can mend; the command line prints it as one line, without a traceback."""


class DataError(LTRError, ValueError):
    """A data file or folder is missing, malformed or not what the config says it is."""


class ConfigError(LTRError, ValueError):
    """A setting is unknown, out of range, or does not go with the others."""


class TrainingError(LTRError, RuntimeError):
    """Training cannot go on: the loss or the gradient is not finite."""


class CheckpointError(LTRError, ValueError):
    """A checkpoint is missing, damaged, or belongs to something else."""


class OutputError(LTRError, RuntimeError):
    """A file cannot be written: the disk is full, or the place is not ours to write."""
