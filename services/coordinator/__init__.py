"""The coordinator: requests, batches, plans, streams. Imports no torch."""
