"""Measures AR, SD and PSD on running services, beside what the cost model predicts."""
