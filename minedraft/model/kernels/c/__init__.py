"""The CPU maker: plain C, compiled once per instruction set, called by ctypes."""
