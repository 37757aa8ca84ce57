"""The checks of benchmarks/gpu_check.py, each in a process of its own."""
