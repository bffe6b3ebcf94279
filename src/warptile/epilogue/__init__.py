"""Epilogues: a Python function of the accumulator, traced to a checked program, as CUDA C++ and as NumPy."""
