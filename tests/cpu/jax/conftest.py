"""These tests need JAX, and run on its CPU client."""

import pytest


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    """On a machine with a GPU as on one without."""
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
