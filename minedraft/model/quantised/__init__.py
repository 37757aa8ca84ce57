"""Quantised checkpoints: reads GPTQ, AWQ, FP8, compressed-tensors and GGUF. Quantises nothing."""
