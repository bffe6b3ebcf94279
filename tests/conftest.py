"""Settings of the whole suite."""

import gc
import os

import pytest

# The suite runs on every core already: BLAS threads would only wait for each other. Set before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Parsed kernels are millions of objects that live as long as a worker's caches: with the default thresholds much of the
# suite's time goes into looking for garbage among them. A launch on the emulator leaves next to none.
gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """What is left when a test is over lives as long as the worker: the collector never looks at it again."""
    done = yield
    gc.collect()
    gc.freeze()
    return done


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests of pages: starting it takes a second."""
    from browser import launched

    with launched() as browser:
        yield browser
