"""The GPU: the CUDA driver, launching compiled kernels on it, and timing them. Imports nothing of the emulator."""
