"""Splits one model over N ranks and synchronizes their forward passes. Starts no process."""
