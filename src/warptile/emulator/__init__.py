"""Executes PTX on any CPU: every lane an element of a NumPy array, every access checked and counted."""

from warptile.emulator.memory.device_memory import DeviceMemory
from warptile.emulator.run_grid import ALL_CHECKS, DEFAULT_CHECKS, EmulationReport, LineCounters, emulate

__all__ = ["ALL_CHECKS", "DEFAULT_CHECKS", "DeviceMemory", "EmulationReport", "LineCounters", "emulate"]
