"""The command line. Starts without torch; only the workers' commands load it."""
