"""What the papers say, beside what theory and the simulator say of the same question."""
