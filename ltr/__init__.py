"""Learning to rank in PyTorch: configs, losses and results that can be trusted."""

__version__ = "0.1.0"
