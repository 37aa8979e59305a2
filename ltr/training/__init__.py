"""The trainer: epochs, schedule, selection and checkpoints of a network."""
