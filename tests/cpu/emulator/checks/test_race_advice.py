"""A finding says what its pair of lines needs, whichever threads met there first."""

import numpy as np
import pytest

import warptile as wt

SHARED = """
extern "C" __global__ void k(int* out) {
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x;
    SYNC
    out[threadIdx.x] = tile[OTHER];
}
"""


def findings(tmp_path, other, sync=""):
    path = tmp_path / "k.cu"
    path.write_text(SHARED.replace("OTHER", other).replace("SYNC", sync))
    return wt.kernel(path, "k", backend="emulator")[1, 64](np.zeros(64, np.int32)).findings


@pytest.mark.parametrize(
    ("other", "fix", "threads"),
    [
        ("threadIdx.x ^ 1", "put __syncwarp()", ("(0, 0, 0)", "(1, 0, 0)")),
        ("63 - threadIdx.x", "put __syncthreads()", ("(0, 0, 0)", "(63, 0, 0)")),
        # Lanes 0 to 30 of each warp meet their own warp, before lane 31 meets the other one.
        ("(threadIdx.x + 1) % 64", "put __syncthreads()", ("(31, 0, 0)", "(32, 0, 0)")),
    ],
)
def test_the_barrier_is_wide_enough(tmp_path, other, fix, threads):
    (found,) = findings(tmp_path, other)
    assert found.fix.startswith(fix)
    assert found.count > 1
    assert all(thread in found.message for thread in threads)
    assert found.missing in found.message
    barrier = fix.removeprefix("put ")
    assert not findings(tmp_path, other, f"{barrier};")


def test_the_narrow_barrier_is_not_enough(tmp_path):
    (found,) = findings(tmp_path, "(threadIdx.x + 1) % 64", "__syncwarp();")
    assert found.fix.startswith("put __syncthreads()")
