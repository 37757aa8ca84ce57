"""Policies decide how much a step drafts and feeds: one file each, listed in `policy.POLICIES`."""
