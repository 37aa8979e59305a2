"""The command line: configs, arguments, and how a command ends."""
