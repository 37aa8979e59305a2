"""Use a trained model: evaluate it, score new lists, export it, and explain its rankings."""
