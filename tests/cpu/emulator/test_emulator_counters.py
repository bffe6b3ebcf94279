"""What the emulator counts, with the arithmetic beside each number."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.launch.params import Scalar

ACCESS = """
template <class T> __global__ void load(T* o, const T* a, int stride) {
  o[threadIdx.x] = a[threadIdx.x * stride];
}
template <class T> __global__ void shared(T* o, const T* a, int stride) {
  extern __shared__ __align__(16) unsigned char raw[];
  T* s = (T*)raw;
  s[threadIdx.x * stride] = a[threadIdx.x];
  __syncwarp();
  o[threadIdx.x] = s[threadIdx.x * stride];
}
"""


@pytest.mark.parametrize(
    ("cuda", "dtype", "stride", "sectors"),
    [
        ("float", np.float32, 1, 4),  # 32 lanes * 4 B = 128 B = 4 sectors of 32 B
        ("float", np.float32, 2, 8),  # every other word of 256 B = 8 sectors
        ("float", np.float32, 8, 32),  # a sector for each lane
        ("float", np.float32, 0, 1),  # all lanes read one word
        ("short", np.int16, 1, 2),  # 64 B
        ("float4", np.float32, 1, 16),  # 512 B
    ],
)
def test_global_sectors(cuda: str, dtype: type, stride: int, sectors: int) -> None:
    width = 4 if cuda == "float4" else 1
    out = np.zeros(32 * width, dtype)
    a = np.zeros(max(1, 32 * max(stride, 1)) * width, dtype)
    counters = run_cuda(ACCESS, f"load<{cuda}>", [out, a, Scalar("s32", stride)]).counters
    assert counters["global_load_requests"] == 1
    assert counters["global_load_sectors"] == sectors
    lanes = 32 if stride else 1  # lanes that ask for the same bytes count once
    assert counters["global_load_bytes"] == lanes * width * np.dtype(dtype).itemsize
    assert counters["global_store_sectors"] == 32 * width * np.dtype(dtype).itemsize // 32


@pytest.mark.parametrize(
    ("cuda", "dtype", "stride", "wavefronts", "ideal"),
    [
        ("float", np.float32, 1, 1, 1),  # 32 lanes in 32 banks
        ("float", np.float32, 2, 2, 1),  # banks 0, 2, ...: two lanes each
        ("float", np.float32, 32, 32, 1),  # all lanes in bank 0, in 32 rows
        ("float", np.float32, 33, 1, 1),  # one word of padding: bank = lane
        ("short", np.int16, 1, 1, 1),  # two lanes share each of 16 words
        ("double", np.float64, 1, 2, 2),  # two half-warps of 128 B
        ("float4", np.float32, 1, 4, 4),  # four quarter-warps of 128 B
        ("float4", np.float32, 2, 8, 4),  # in each quarter, lanes i and i + 4 meet in the same banks
    ],
)
def test_shared_wavefronts(cuda: str, dtype: type, stride: int, wavefronts: int, ideal: int) -> None:
    width = 4 if cuda == "float4" else 1
    out, a = np.zeros(32 * width, dtype), np.ones(32 * width, dtype)
    counters = run_cuda(
        ACCESS, f"shared<{cuda}>", [out, a, Scalar("s32", stride)], shared=32 * max(stride, 1) * width * 8
    ).counters
    for kind in ("load", "store"):
        assert counters[f"shared_{kind}_wavefronts"] == wavefronts
        assert counters[f"shared_{kind}_wavefronts_ideal"] == ideal
        assert counters[f"shared_{kind}_conflict_ratio"] == wavefronts / ideal
    np.testing.assert_array_equal(out, a)


def test_counts_belong_to_source_lines() -> None:
    report = run_cuda(ACCESS, "shared<float>", [np.zeros(32, np.float32), np.zeros(32, np.float32), Scalar("s32", 4)],
                      shared=4096)  # fmt: skip
    by_line = {line.location.line: line.counters for line in report.lines}
    assert by_line[8]["shared_store_wavefronts"] == 4  # s[...] = a[...]: lanes i, i + 8, i + 16, i + 24 share a bank
    assert by_line[10]["shared_load_wavefronts"] == 4
    assert by_line[10]["shared_store_wavefronts"] == 0
    total = sum(counters["warp_instructions"] for counters in by_line.values())
    assert 0 < total <= report.counters["warp_instructions"]


def test_a_predicated_access_counts_only_its_lanes() -> None:
    source = (
        "__global__ void k(float* o, const float* a, int n) { if (threadIdx.x < n) o[threadIdx.x] = a[threadIdx.x]; }"
    )
    counters = run_cuda(source, "k", [np.zeros(64, np.float32), np.zeros(64, np.float32), Scalar("s32", 40)],
                        block=64, outputs={0: False}).counters  # fmt: skip
    assert counters["global_load_requests"] == 2  # both warps have lanes that load
    assert counters["global_load_sectors"] == 4 + 1  # 8 more lanes are one sector
    assert counters["global_load_bytes"] == 40 * 4
