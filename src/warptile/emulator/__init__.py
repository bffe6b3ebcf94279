"""Executes PTX on any CPU: every lane an element of a NumPy array, every access checked and counted."""

from warptile.emulator.explore import explore
from warptile.emulator.findings import ALL_CHECKS, DEFAULT_CHECKS, EmulationFinding, select_checks
from warptile.emulator.memory.device_memory import DeviceMemory
from warptile.emulator.run_grid import EmulationReport, LineCounters, emulate

__all__ = [
    "ALL_CHECKS",
    "DEFAULT_CHECKS",
    "DeviceMemory",
    "EmulationFinding",
    "EmulationReport",
    "LineCounters",
    "emulate",
    "explore",
    "select_checks",
]
