"""What operators see of requests and steps: recent spans, sums since start, and their rendering."""
