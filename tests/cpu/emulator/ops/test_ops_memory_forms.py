"""Loads and stores of memory-mapped input and output, `discard`, and reductions of `.s64` at an mbarrier."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.errors import MisalignedAccess, UninitializedRead, UnknownInstruction


def run(body: str, out: np.ndarray, block: int = 1) -> None:
    run_cuda(f'extern "C" __global__ void k(int* x) {{ {body} }}', "k", [out], block=block, outputs={0: False})


def test_mmio_accesses_are_relaxed_and_strong() -> None:
    """Two threads may access the word without a barrier."""
    out = np.zeros(2, np.int32)
    body = """
    if (threadIdx.x == 0) asm volatile("st.mmio.relaxed.sys.global.b32 [%0], %1;" :: "l"(x), "r"(7) : "memory");
    else {
        int found;
        do asm volatile("ld.mmio.relaxed.sys.global.b32 %0, [%1];" : "=r"(found) : "l"(x) : "memory"); while (!found);
        x[1] = found;
    }
    """
    run(body, out, 64)
    assert out.tolist() == [7, 7]


DISCARD = 'asm volatile("discard.global.L2 [%0], 128;" :: "l"(x + 32) : "memory");'


def test_discarded_memory_holds_nothing_until_it_is_written() -> None:
    out = np.arange(96, dtype=np.int32)
    run(f"{DISCARD} x[40] = 5; x[0] = x[31] + x[40] + x[64];", out)
    assert out[0] == 31 + 5 + 64
    with pytest.raises(UninitializedRead, match="which nothing has written"):
        run(f"{DISCARD} x[0] = x[63];", np.arange(96, dtype=np.int32))
    with pytest.raises(MisalignedAccess, match="multiple of 128"):
        run(DISCARD.replace("x + 32", "x + 4"), np.arange(96, dtype=np.int32))


def test_constant_addresses_cannot_be_told_from_others() -> None:
    body = 'int p; asm("{.reg .pred p; isspacep.const p, %1; selp.s32 %0, 1, 0, p;}" : "=r"(p) : "l"(x)); x[0] = p;'
    with pytest.raises(UnknownInstruction, match=r"\.const"):
        run(body, np.zeros(1, np.int32))


def test_signed_sums_of_64_bits_arrive_at_an_mbarrier() -> None:
    out = np.zeros(2, np.int32)
    body = """
    __shared__ long long sum, bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&sum), mbar = (unsigned)__cvta_generic_to_shared(&bar);
    sum = 5;
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(mbar) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 8;" :: "r"(mbar) : "memory");
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s64 [%0], %1, [%2];"
                 :: "r"(at), "l"(-7ll), "r"(mbar) : "memory");
    int done;
    do asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.s32 %0, 1, 0, p;}"
                    : "=r"(done) : "r"(mbar) : "memory"); while (!done);
    x[0] = (int)sum;
    """
    run(body, out)
    assert out[0] == -2
