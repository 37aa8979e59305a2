"""Test properties of losses, metrics and models, including your own, and list the losses."""
