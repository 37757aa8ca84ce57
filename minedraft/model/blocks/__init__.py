"""Decoder layers over the kernels, in place of transformers' own where they compute the same."""
