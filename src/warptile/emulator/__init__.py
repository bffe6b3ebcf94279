"""Executes PTX on any CPU: every lane an element of a NumPy array, every access checked and counted."""

from warptile.emulator.launch import ALL_CHECKS, DEFAULT_CHECKS, LineCounters, Report, emulate

__all__ = ["ALL_CHECKS", "DEFAULT_CHECKS", "LineCounters", "Report", "emulate"]
