"""Counters from Nsight Compute and the emulator, and compute-sanitizer runs."""
