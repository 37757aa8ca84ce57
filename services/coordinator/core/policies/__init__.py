"""How much is drafted and fed in a step: a file per policy, named in `policy.POLICIES`."""
