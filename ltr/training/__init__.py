"""Training: the epochs, schedule, evaluation, selection and checkpoints of a model."""
