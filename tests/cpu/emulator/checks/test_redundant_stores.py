"""Unordered stores of one value to one place are a class of their own, and no data race."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import DEFAULT_CHECKS, EmulationReport
from warptile.errors import DataRace, RedundantStore

STRICT = DEFAULT_CHECKS | {"redundant-stores"}

STORES = {
    "lanes of one instruction": ("s[threadIdx.x / 32] = v[threadIdx.x / 32];", 4 * 31),
    "warps, one after the other": (
        "#pragma unroll 1\n for (int i = 0; i <= threadIdx.x / 32; ++i) s[i] = 7.0f;",
        127 + 95 + 63 + 31,
    ),
    "blocks": ("if (threadIdx.x == 0) o[256] = 5.0f;", 1),
    "NaN": ("if (threadIdx.x < 2) s[1] = __int_as_float(0x7fc00123);", 1),
    "vectors of 16 bytes": ("if (threadIdx.x < 3) *(float4*)s = make_float4(1, 2, 3, threadIdx.x / 4);", 2),
}


def run(store: str, checks: frozenset[str] = DEFAULT_CHECKS, *, collect: bool = False) -> EmulationReport:
    text = f"""__global__ void k(float* o, const float* v) {{
                 __shared__ __align__(16) float s[4];
                 if (threadIdx.x < 4) s[threadIdx.x] = 0.5f;
                 __syncthreads();
                 {store}
                 __syncthreads();
                 o[blockIdx.x * 128 + threadIdx.x] = s[threadIdx.x % 4];
               }}"""
    values = np.array([1, 2, 3, 4], np.float32)
    return run_cuda(
        text, "k", [np.zeros(257, np.float32), values], grid=2 if "o[" in store else 1, block=128, outputs={0: False},
        checks=checks, collect=collect,
    )  # fmt: skip


@pytest.mark.parametrize("name", STORES)
def test_the_same_value_is_reported_only_when_asked_for(name: str) -> None:
    store, count = STORES[name]
    assert run(store, collect=True).findings == ()
    with pytest.raises(RedundantStore, match=r"redundant store to .*, with the same value, and nothing orders the two"):
        run(store, STRICT)
    (found,) = run(store, STRICT, collect=True).findings
    assert (found.check, found.severity, found.count, found.fails) == ("redundant-stores", "warning", count, False)


@pytest.mark.parametrize(
    "store",
    [
        "s[threadIdx.x / 32] = v[threadIdx.x % 4];",
        "if (threadIdx.x % 32 == 0) s[0] = threadIdx.x == 96 ? 8.0f : 7.0f;",
        "if (threadIdx.x == 0) o[256] = 5.0f + blockIdx.x;",
        "if (threadIdx.x < 3) *(float4*)s = make_float4(1, 2, 3, threadIdx.x / 2);",
    ],
)
def test_another_value_is_a_race(store: str) -> None:
    with pytest.raises(DataRace, match="write-write race"):
        run(store)


def test_a_read_before_such_stores_is_still_a_race() -> None:
    with pytest.raises(DataRace, match=r"(read-write|write-read) race"):
        run("s[threadIdx.x / 64] = 3.0f; if (s[(threadIdx.x / 64 + 1) % 2] == 4.0f) o[0] = 1.0f;")


def test_what_lanes_stored_is_ordered_by_a_barrier() -> None:
    """A store of another value behind a barrier is no race, whichever lane's store came last."""
    assert run("s[0] = 3.0f; __syncthreads(); if (threadIdx.x == 40) s[0] = 5.0f;").finished
