"""Drives the coordinator's own core in virtual time: what a load would do, without models."""
