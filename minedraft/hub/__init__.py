"""Demo models: fetched by hash, converted once, kept whole in a cache (needs the worker extra)."""
