"""The edge to the user: configs, what is typed, and how a command ends."""
