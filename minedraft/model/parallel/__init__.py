"""One model over N ranks: who holds which slice, how ranks talk, who leads. Starts no process."""
