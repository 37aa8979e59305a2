"""Training a model: its epochs, schedule, evaluation, selection and checkpoints."""
