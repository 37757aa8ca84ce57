"""The torch half, shared by drafter and verifier: load, run, sample. Knows no service."""
