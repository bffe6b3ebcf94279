"""A thread that acts on what it has read from a word lies behind the writes that came before: it may reset the word."""

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator.checks.deciding_reads import DecidingReads
from warptile.errors import DataRace
from warptile.ptx import parse

LAST_BLOCK = """
extern "C" __global__ void k(int* out, int* counter) {
  __shared__ int drawn;
  if (threadIdx.x == 0) drawn = atomicAdd(counter, 1);
  __syncthreads();
  if (drawn == gridDim.x - 1 && threadIdx.x == USER) { out[0] = *counter; *counter = 0; }
}
"""

WAITS = """
extern "C" __global__ void k(int* out, int* counter) {
  if (threadIdx.x > 0) return;
  if (blockIdx.x == 3) {
    int seen;
    do LOAD while (seen < 3);
    out[0] = seen;
    *counter = 0;
  } else {
    __threadfence();
    atomicAdd(counter, 1);
  }
}
"""
LOADS = {
    "volatile": "seen = *(volatile int*)counter;",
    "acquire": '{ asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory"); }',
    "an atomic": "seen = atomicAdd(counter, 0);",
    "a weak load": "seen = *counter;",
}


def run(text: str, *, grid: int = 4, block: int = 64) -> list[int]:
    out, counter = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run_cuda(text, "k", [out, counter], grid=grid, block=block, outputs={0: False, 1: False})
    return [int(out[0]), int(counter[0])]


@pytest.mark.parametrize("user", [0, 40])
def test_the_block_that_draws_the_last_ticket_resets_the_counter(user):
    assert run(LAST_BLOCK.replace("USER", str(user))) == [4, 0]


@pytest.mark.parametrize("load", ["volatile", "acquire", "an atomic"])
def test_who_has_waited_for_a_counter_resets_it(load):
    assert run(WAITS.replace("LOAD", LOADS[load])) == [3, 0]


def test_a_weak_load_does_not_wait_for_anything():
    with pytest.raises(DataRace, match=r"race on 1\+0"):
        run(WAITS.replace("LOAD while (seen < 3);", "seen = *counter; while (seen < 0);"))


@pytest.mark.parametrize(
    "text",
    [
        # Not all tickets have been drawn.
        LAST_BLOCK.replace("gridDim.x - 1", "1").replace("USER", "0"),
        # The thread has drawn a ticket, and does not look at it.
        LAST_BLOCK.replace("drawn == gridDim.x - 1", "blockIdx.x == gridDim.x - 1").replace("USER", "0"),
        # It looks at it, and goes on whatever it says.
        LAST_BLOCK.replace("if (drawn", "if (drawn > 99) __trap(); if (threadIdx.x + 3")
        .replace("gridDim.x - 1", "blockIdx.x").replace("USER", "0"),
    ],
)  # fmt: skip
def test_a_counter_is_not_reset_while_others_draw(text):
    with pytest.raises(DataRace, match=r"race on 1\+0"):
        run(text)


def test_data_still_need_a_fence_behind_the_ticket():
    text = """
__device__ int parts[4];
extern "C" __global__ void k(int* out, int* counter) {
  if (threadIdx.x > 0) return;
  parts[blockIdx.x] = blockIdx.x;
  __threadfence();
  if (atomicAdd(counter, 1) < gridDim.x - 1) return;
  FENCE
  out[0] = parts[0] + parts[1] + parts[2] + parts[3];
  *counter = 0;
}
"""
    assert run(text.replace("FENCE", "__threadfence();")) == [6, 0]
    with pytest.raises(DataRace, match=r"write-read race on parts\+0"):
        run(text.replace("FENCE", ""))


BODY = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<2>;
  .shared .b32 s;
  ld.param.u64 %rd1, [p];
  atom.global.add.u32 %r1, [%rd1], 1;
  TEXT
  st.global.u32 [%rd1], 0;
  DONE: ret;
}
"""


@pytest.mark.parametrize(
    ("text", "decides"),
    [
        ("add.u32 %r2, %r1, 1; setp.ne.u32 %p1, %r2, 4; @%p1 bra DONE;", True),
        ("setp.ne.u32 %p1, %r1, 4; @%p1 ret;", True),
        ("setp.ne.u32 %p1, %r1, 4; @%p1 trap;", False),
        ("setp.ne.u32 %p1, %r1, 4; @%p1 bra ON; mov.u32 %r2, 1; ON:", False),
        ("setp.ne.u32 %p1, %r1, 4; @%p1 bra ON; bar.sync 0; trap; ON:", False),
        ("LOOP: ld.volatile.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r1, %r2; @%p1 bra LOOP;", True),
        ("st.shared.u32 [s], %r1; bar.sync 0; ld.shared.u32 %r3, [s]; setp.eq.u32 %p2, %r3, 0; @%p2 bra DONE;", True),
        ("st.global.u32 [%rd1+4], %r1; setp.eq.u32 %p2, %r3, 0; @%p2 bra DONE;", False),
        ("setp.eq.u32 %p3, %r1, 0; selp.u32 %r4, 1, 2, %p3; setp.eq.u32 %p2, %r4, 2; @!%p2 bra DONE;", True),
        ("T: .branchtargets ON, DONE; brx.idx %r1, T; ON:", True),
    ],
)
def test_what_decides_whether_an_instruction_is_executed(text, decides):
    (function,) = parse(BODY.replace("TEXT", text)).functions.values()
    atomic = next(each for each in function.body if each.opcode == "atom")
    store = [each for each in function.body if each.opcode == "st"][-1]
    assert (id(atomic) in DecidingReads([function]).of(store)) == decides


def test_a_guard_of_the_instruction_itself_decides():
    text = BODY.replace("TEXT", "setp.eq.u32 %p1, %r1, 3;").replace("  st.global.u32", "  @%p1 st.global.u32")
    (function,) = parse(text).functions.values()
    atomic, store = (next(each for each in function.body if each.opcode == name) for name in ("atom", "st"))
    assert DecidingReads([function]).of(store) == {id(atomic)}
