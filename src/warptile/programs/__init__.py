"""Whole CUDA programs on the emulator: a stand-in for the CUDA runtime library hands its calls to this process."""
