"""The command line: read configs and arguments, run a command, and report its errors."""
