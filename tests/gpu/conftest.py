"""GPU tests: skipped as a whole where there is no GPU."""

import pytest

from warptile.gpu import driver


@pytest.fixture(autouse=True)
def planned_kernels(monkeypatch):
    """Results are those of the planned kernels: no other one serves while they are compiled."""
    monkeypatch.setenv("WARPTILE_COMPILE", "wait")


def pytest_collection_modifyitems(items):
    """Mark every test of this folder, and skip it without a GPU."""
    prototype = pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
    here = pytest.mark.skipif(not driver.available(), reason="needs an NVIDIA GPU")
    for item in items:
        if "gpu" in item.path.parent.parts[-1:]:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(here)
            item.add_marker(prototype)
            item.add_marker(pytest.mark.filterwarnings("ignore:`torch.jit.script"))
