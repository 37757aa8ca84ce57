"""Answers before a device is bought: which target, drafter, k, batches and drafters would do.

Closed form over all layouts first, the simulator on the best few. No torch, no clock, no network.
"""
