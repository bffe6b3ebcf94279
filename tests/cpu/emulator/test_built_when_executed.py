"""Launches after the first build an instruction when they first execute it."""

import numpy as np
import pytest

from emulation import compiled, run_cuda
from warptile.emulator import steps
from warptile.errors import IllegalAddress
from warptile.launch.params import Scalar

KERNEL = """
__device__ __noinline__ int twice(int* o, int n) { return o[threadIdx.x] * 2 + n; }
__global__ void k(int* o, const int* a, int way) {
  int x = a[threadIdx.x];
  if (way == 1) x = twice(o, x);
  else if (way == 2) x = __float_as_int(sqrtf(__int_as_float(x)) * 3.0f);
  else if (way == 3) x = a[threadIdx.x + 100000];
  o[threadIdx.x] = x;
}
"""


def launch(way):
    out, given = np.arange(32, dtype=np.int32), np.arange(32, dtype=np.int32) ** 2
    report = run_cuda(KERNEL, "k", [out, given, Scalar("s32", way)])
    return out.tolist(), report.counters


@pytest.fixture
def built(monkeypatch):
    """How many instructions have been built since."""
    found = []
    plain = steps._plain
    monkeypatch.setattr(steps, "_plain", lambda *given: (found.append(1), plain(*given))[1])
    return found


def test_only_what_is_executed_is_built_again(built):
    compiled.cache_clear()  # a module that nobody has launched
    first = launch(0)
    all_of_it, built[:] = len(built), []
    assert launch(0) == first
    assert 0 < len(built) < all_of_it / 2
    built.clear()
    assert launch(1)[0] == [2 * i + i * i for i in range(32)]
    assert 0 < len(built) < all_of_it
    assert launch(2)[0] == (np.sqrt((np.arange(32, dtype=np.int32) ** 2).view(np.float32)) * 3).view(np.int32).tolist()
    assert launch(0) == first


def test_errors_of_what_is_built_late_say_where_they_are():
    launch(0)
    for _ in range(2):
        with pytest.raises(IllegalAddress) as met:
            launch(3)
        assert met.value.location.line == 7
