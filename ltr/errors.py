"""The errors that a user can mend. Each message is one line and ends with the remedy."""


class LTRError(Exception):
    """An error that a user can mend; the command line prints it as one line, no traceback."""


class DataError(LTRError, ValueError):
    """A data file or folder is missing, malformed, or differs from its config."""


class ConfigError(LTRError, ValueError):
    """A setting is unknown, out of range, or does not go with the others."""


class TrainingError(LTRError, RuntimeError):
    """Training cannot go on: the loss or the gradient is not finite."""


class CheckpointError(LTRError, ValueError):
    """A checkpoint is missing, damaged, or belongs to something else."""


class OutputError(LTRError, RuntimeError):
    """A file cannot be written: the disk is full, or its folder is not writable."""
