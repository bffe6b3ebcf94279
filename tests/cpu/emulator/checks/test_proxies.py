"""Plain writes that bulk copies read: where fence.proxy.async has to stand."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.errors import DataRace

FENCE = 'asm volatile("fence.proxy.async;" ::: "memory");'
SHARED = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
GLOBAL = 'asm volatile("fence.proxy.async.global;" ::: "memory");'


def store(before: str, between: str, behind: str, schedule: str = "latest") -> list[int]:
    """Each of 64 threads writes a word, and thread 32 starts a bulk store of all of them."""
    out = np.zeros(64, np.int32)
    run_cuda(
        """__global__ void k(int* o) {
             __shared__ __align__(128) int s[64];
             #pragma unroll 1
             for (int i = 0; i < 2; ++i) {
               BEFORE
               s[threadIdx.x] = threadIdx.x + i;  // first
               BETWEEN
               __syncthreads();
               BEHIND
               if (threadIdx.x == 32) {
                 asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;"  // second
                              :: "l"(o), "r"(static_cast<unsigned>(__cvta_generic_to_shared(s))) : "memory");
                 asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                 asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
               }
               __syncthreads();
             }
           }""".replace("BEFORE", before).replace("BETWEEN", between).replace("BEHIND", behind),
        "k", [out], block=64, schedule=schedule,
    )  # fmt: skip
    return out.tolist()


@pytest.mark.parametrize("schedule", ["latest", "earliest", "random:1"])
@pytest.mark.parametrize(
    ("before", "between", "behind"),
    [("", FENCE, ""), ("", SHARED, ""), ("", "", FENCE), ("", "", f"if (threadIdx.x == 32) {{ {FENCE} }}")],
)
def test_a_fence_by_those_that_wrote_or_by_the_one_that_copies(
    before: str, between: str, behind: str, schedule: str
) -> None:
    assert store(before, between, behind, schedule) == list(range(1, 65))


@pytest.mark.parametrize(
    ("before", "between", "behind"),
    [
        ("", "", ""),
        ("", GLOBAL, ""),
        (FENCE, "", ""),
        ("", f"if (threadIdx.x == 32) {{ {FENCE} }}", ""),
        ("", f"if (threadIdx.x != 7) {{ {FENCE} }}", ""),
        ("", "", f"if (threadIdx.x != 32) {{ {FENCE} }}"),
        ("", "if (threadIdx.x >= 0) __threadfence();", ""),
    ],
)
def test_fences_that_are_missing_or_elsewhere(before: str, between: str, behind: str) -> None:
    with pytest.raises(DataRace, match=r"no fence\.proxy\.async stands between them") as caught:
        store(before, between, behind)
    assert caught.value.kind == "write-read"
    assert caught.value.first is not None
    assert "s+" in str(caught.value)
