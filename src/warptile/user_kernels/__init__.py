"""Kernels that users bring: called from Python on arrays, on a GPU or on the emulator."""
