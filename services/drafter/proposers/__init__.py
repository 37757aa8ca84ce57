"""What drafters propose from: one file per kind, named in `kinds.KINDS`."""
