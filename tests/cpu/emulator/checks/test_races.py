"""Data races: kernels with a hazard, which is reported with both source lines, and without it, which pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import DEFAULT_CHECKS
from warptile.errors import DataRace, Deadlock, UninitializedRead
from warptile.launch.params import Scalar

NUMBERS = np.arange(256, dtype=np.int32)

COPY = """
#define COPY(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: \
  "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from) : "memory")
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(groups) asm volatile("cp.async.wait_group " #groups ";" ::: "memory")
"""

NAMED = """
#define ARRIVE(id, threads) asm volatile("bar.arrive " #id ", " #threads ";" ::: "memory")
#define SYNC(id, threads) asm volatile("bar.sync " #id ", " #threads ";" ::: "memory")
"""

FLAGS = """
__device__ int flag, data[64];
#define STORE(how, place, value) asm volatile("st." how ".global.u32 [%0], %1;" :: "l"(place), "r"(value) : "memory")
#define LOAD(how, place, value) asm volatile("ld." how ".global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory")
"""


@dataclass(frozen=True)
class Twins:
    """A kernel with a place ``@`` for the wrong text or the right one.

    The race is of kind ``kind``, between the lines that are marked ``// first`` and ``// second``, and its report says
    ``hint``.
    """

    text: str
    wrong: str
    right: str
    kind: str
    hint: str
    block: int = 64
    grid: int = 1
    elements: int = 64
    inputs: tuple[np.ndarray, ...] = ()
    outputs: dict[int, bool] = field(default_factory=lambda: {0: True})
    schedule: str = "latest"

    def run(self, filled: str, checks: frozenset[str] = DEFAULT_CHECKS) -> list[np.ndarray]:
        arrays = [np.zeros(self.elements, np.int32), *(one.copy() for one in self.inputs)]
        text = self.text.replace("@", filled)
        run_cuda(
            text, "k", list(arrays), block=self.block, grid=self.grid, outputs=self.outputs, schedule=self.schedule,
            checks=checks,
        )  # fmt: skip
        return arrays


TWINS = {
    "no barrier between write and read": Twins(
        """__global__ void k(int* o) {
             __shared__ int s[64];
             s[threadIdx.x] = threadIdx.x;  // first
             @
             o[threadIdx.x] = s[threadIdx.x ^ 32];  // second
           }""",
        "", "__syncthreads();", "write-read", "no barrier (__syncthreads()) between them",
    ),
    "no barrier at the end of a loop": Twins(
        """__global__ void k(int* o, const int* a) {
             __shared__ int s[64];
             int sum = 0;
             #pragma unroll 1
             for (int i = 0; i < 4; ++i) {
               s[threadIdx.x] = a[i * 64 + threadIdx.x];  // second
               __syncthreads();
               sum += s[63 - threadIdx.x];  // first
               @
             }
             o[threadIdx.x] = sum;
           }""",
        "", "__syncthreads();", "read-write", "no barrier (__syncthreads()) between them", inputs=(NUMBERS,),
    ),
    "a barrier of another number is a barrier too, but not two of them": Twins(
        NAMED + """__global__ void k(int* o) {
             __shared__ int s[64];
             s[threadIdx.x] = threadIdx.x;  // first
             @
             o[threadIdx.x] = s[63 - threadIdx.x];  // second
           }""",
        "if (threadIdx.x < 32) SYNC(1, 32); else SYNC(2, 32);", "if (threadIdx.x < 32) SYNC(1, 64); else SYNC(1, 64);",
        "write-read", "no barrier (__syncthreads()) between them",
    ),
    "lanes of a warp out of step": Twins(
        """__global__ void k(int* o) {
             __shared__ int s[64];
             s[threadIdx.x] = threadIdx.x;  // first
             @
             o[threadIdx.x] = s[threadIdx.x ^ 1];  // second
           }""",
        "", "__syncwarp();", "write-read", "no __syncwarp() (bar.warp.sync) or barrier between them",
    ),
    "lanes of a warp out of step in a loop": Twins(
        """__global__ void k(int* o) {
             __shared__ int s[64];
             s[threadIdx.x] = threadIdx.x;
             #pragma unroll 1
             for (int step = 16; step; step /= 2) {
               __syncwarp();
               int other = s[threadIdx.x ^ step];  // first
               @
               s[threadIdx.x] += other;  // second
             }
             o[threadIdx.x] = s[threadIdx.x];
           }""",
        "", "__syncwarp();", "read-write", "no __syncwarp() (bar.warp.sync) or barrier between them",
    ),
    "a shuffle orders no memory": Twins(
        """__global__ void k(int* o) {
             __shared__ int s[64];
             s[threadIdx.x] = threadIdx.x;  // first
             int next = __shfl_xor_sync(~0u, threadIdx.x, 1);
             @
             o[threadIdx.x] = s[next];  // second
           }""",
        "", "__syncwarp();", "write-read", "no __syncwarp() (bar.warp.sync) or barrier between them",
    ),
    "a mask without the lane that wrote": Twins(
        """__global__ void k(int* o) {
             __shared__ signed char s[64];
             s[threadIdx.x] = threadIdx.x;  // first
             __syncwarp(@);
             o[threadIdx.x] = s[threadIdx.x ^ 1];  // second
           }""",
        "threadIdx.x % 2 ? 0xAAAAAAAA : 0x55555555", "threadIdx.x % 4 < 2 ? 0x33333333 : 0xCCCCCCCC",
        "write-read", "no __syncwarp() (bar.warp.sync) or barrier between them",
    ),
    "__syncwarp between warps": Twins(
        """__global__ void k(int* o) {
             __shared__ int s[64];
             s[threadIdx.x] = threadIdx.x;  // first
             @
             o[threadIdx.x] = s[63 - threadIdx.x];  // second
           }""",
        "__syncwarp();", "__syncthreads();", "write-read", "no barrier (__syncthreads()) between them",
    ),
    "a producer that arrives before it writes": Twins(
        NAMED + """__global__ void k(int* o) {
             __shared__ int s[32];
             if (threadIdx.x < 32) {
               @
             } else {
               SYNC(1, 96);
               o[threadIdx.x - 32] = s[threadIdx.x % 32];  // MARK
             }
           }""",
        "ARRIVE(1, 96); s[threadIdx.x] = threadIdx.x;  // MARK", "s[threadIdx.x] = threadIdx.x; ARRIVE(1, 96);",
        "read-write|write-read", "no barrier (__syncthreads()) between them", block=96,
    ),
    "a buffer that is filled again before it is empty": Twins(
        NAMED + """__global__ void k(int* o) {
             __shared__ int s[32];
             int sum = 0;
             #pragma unroll 1
             for (int i = 0; i < 3; ++i) {
               if (threadIdx.x < 32) {
                 @
                 s[threadIdx.x] = i + threadIdx.x;  // MARK
                 ARRIVE(1, 96);
               } else {
                 SYNC(1, 96);
                 sum += s[31 - threadIdx.x % 32];  // MARK
                 ARRIVE(2, 96);
               }
             }
             if (threadIdx.x < 32) SYNC(2, 96);
             else o[threadIdx.x - 32] = sum;
           }""",
        "", "if (i) SYNC(2, 96);", "read-write|write-read|write-write", "no barrier (__syncthreads()) between them",
        block=96,
    ),
    "a copy that only its own thread has waited for": Twins(
        COPY + """__global__ void k(int* o, const int* a) {
             __shared__ int s[64];
             COPY(&s[threadIdx.x], a + threadIdx.x);  // first
             COMMIT;
             WAIT(0);
             @
             o[threadIdx.x] = s[63 - threadIdx.x];  // second
           }""",
        "", "__syncthreads();", "write-read", "has waited for its copy, but no barrier between that wait and this",
        inputs=(NUMBERS,),
    ),
    "a wait behind the barrier": Twins(
        COPY + """__global__ void k(int* o, const int* a) {
             __shared__ int s[64];
             COPY(&s[threadIdx.x], a + threadIdx.x);  // first
             COMMIT;
             @
             o[threadIdx.x] = s[63 - threadIdx.x];  // second
           }""",
        "__syncthreads(); WAIT(0);", "WAIT(0); __syncthreads();", "write-read",
        "has waited for its copy, but no barrier between that wait and this", inputs=(NUMBERS,),
    ),
    "a ring that waits for one stage too few": Twins(
        COPY + """__global__ void k(int* o, const int* a) {
             __shared__ int s[3][64];
             int sum = 0;
             for (int i = 0; i < 2; ++i) { COPY(&s[i][threadIdx.x], a + i * 64 + threadIdx.x); COMMIT; }  // first
             #pragma unroll 1
             for (int i = 0; i < 4; ++i) {
               @
               __syncthreads();
               if (i < 2) COPY(&s[(i + 2) % 3][threadIdx.x], a + (i + 2) * 64 + threadIdx.x);
               COMMIT;
               sum += s[i % 3][63 - threadIdx.x];  // second
             }
             o[threadIdx.x] = sum;
           }""",
        "WAIT(2);", "WAIT(1);", "write-read", "the copying thread has not waited for its copy", inputs=(NUMBERS,),
        schedule="earliest",
    ),
    "a thread that reads its own copy too early": Twins(
        COPY + """__global__ void k(int* o, const int* a) {
             __shared__ int s[64];
             COPY(&s[threadIdx.x], a + threadIdx.x);  // first
             COMMIT;
             @
             o[threadIdx.x] = s[threadIdx.x];  // second
           }""",
        "", "WAIT(0);", "write-read", "the thread has not waited for its own copy", inputs=(NUMBERS,),
        schedule="earliest",
    ),
    "a copy into a stage that others still read": Twins(
        COPY + """__global__ void k(int* o, const int* a) {
             __shared__ int s[64];
             int sum = 0;
             #pragma unroll 1
             for (int i = 0; i < 4; ++i) {
               COPY(&s[threadIdx.x], a + i * 64 + threadIdx.x);  // second
               COMMIT;
               WAIT(0);
               __syncthreads();
               sum += s[63 - threadIdx.x];  // first
               @
             }
             o[threadIdx.x] = sum;
           }""",
        "", "__syncthreads();", "read-write", "no barrier (__syncthreads()) between them", inputs=(NUMBERS,),
    ),
    "two copies to one place": Twins(
        COPY + """__global__ void k(int* o, const int* a) {
             __shared__ int s[64];
             COPY(&s[threadIdx.x], a + threadIdx.x);  // first
             @
             COPY(&s[threadIdx.x], a + 64 + threadIdx.x);  // second
             COMMIT;
             WAIT(0);
             o[threadIdx.x] = s[threadIdx.x];
           }""",
        "", "COMMIT; WAIT(0);", "write-write", "the thread has not waited for its own copy", inputs=(NUMBERS,),
    ),
    "a source that changes while it is copied": Twins(
        COPY + """__global__ void k(int* o, int* a) {
             __shared__ int s[64];
             a[threadIdx.x] += 1;
             COPY(&s[threadIdx.x], a + threadIdx.x);  // first
             COMMIT;
             @
             a[threadIdx.x] = 0;  // second
             WAIT(0);
             o[threadIdx.x] = s[threadIdx.x];
           }""",
        "", "WAIT(0);", "read-write", "the thread has not waited for its own copy", inputs=(NUMBERS,),
        outputs={0: True, 1: False}, schedule="earliest",
    ),
    "counting without atomics": Twins(
        """__global__ void k(int* o) {
             __shared__ int s[4];
             if (threadIdx.x < 4) s[threadIdx.x] = 0;
             __syncthreads();
             @  // first second
             __syncthreads();
             o[threadIdx.x] = s[threadIdx.x % 4];
           }""",
        "s[threadIdx.x % 4] += 1;", "atomicAdd(&s[threadIdx.x % 4], 1);", "read-write", "between them",
    ),
    "an atomic and a plain read": Twins(
        """__global__ void k(int* o) {
             __shared__ int s;
             if (threadIdx.x == 0) s = 0;
             __syncthreads();
             if (threadIdx.x < 32) atomicAdd(&s, 1);  // MARK
             @
             o[threadIdx.x] = s;  // MARK
           }""",
        "", "__syncthreads();", "write-read|read-write",
        "between them",
    ),
    "two blocks that write one place": Twins(
        """__global__ void k(int* o) {
             o[@] = blockIdx.x;  // first second
           }""",
        "threadIdx.x", "threadIdx.x + 32 * blockIdx.x", "write-write", "CTAs run in any order", block=32, grid=2,
        outputs={0: False},
    ),
    "another value from every thread": Twins(
        """__global__ void k(int* o, const int* a) {
             __shared__ int found;
             if (threadIdx.x == 0) found = 0;
             __syncthreads();
             if (@) found = threadIdx.x;  // first second
             __syncthreads();
             o[threadIdx.x] = found;
           }""",
        "a[threadIdx.x] > 9", "a[threadIdx.x] == 9", "write-write",
        "no __syncwarp() (bar.warp.sync) or barrier between them", inputs=(NUMBERS,),
    ),
    "the last block sums, without a fence before its counter": Twins(
        """__device__ unsigned done;
           __global__ void k(int* o, int* part) {
             __shared__ bool last;
             if (threadIdx.x == 0) {
               part[blockIdx.x] = blockIdx.x + 1;  // first
               @
               last = atomicAdd(&done, 1) == gridDim.x - 1;
               __threadfence();
             }
             __syncthreads();
             if (last && threadIdx.x < gridDim.x) o[threadIdx.x] = part[threadIdx.x];  // second
           }""",
        "", "__threadfence();", "write-read", "CTAs run in any order", grid=8, inputs=(np.zeros(8, np.int32),),
        outputs={0: False, 1: False},
    ),
    "the last block sums, without a fence behind its counter": Twins(
        """__device__ unsigned done;
           __global__ void k(int* o, int* part) {
             __shared__ bool last;
             if (threadIdx.x == 0) {
               part[blockIdx.x] = blockIdx.x + 1;  // first
               __threadfence();
               last = atomicAdd(&done, 1) == gridDim.x - 1;
               @
               if (last) for (int i = 0; i < gridDim.x; ++i) o[i] = part[i];  // second
             }
           }""",
        "", "__threadfence();", "write-read", "a flag was read, but no fence stands between", grid=8,
        inputs=(np.zeros(8, np.int32),), outputs={0: False, 1: False},
    ),
    "a fence in front of the barrier instead of behind it": Twins(
        """__device__ unsigned done;
           __global__ void k(int* o, int* part) {
             part[blockIdx.x * 64 + threadIdx.x] = threadIdx.x;  // first
             @
             if (threadIdx.x == 0) {
               bool last = atomicAdd(&done, 1) == gridDim.x - 1;
               __threadfence();
               if (last) for (int i = 0; i < 64; ++i) o[i] = part[i] + part[64 + i];  // second
             }
           }""",
        "__threadfence(); __syncthreads();", "__syncthreads(); __threadfence();", "write-read",
        "CTAs run in any order", grid=2, inputs=(np.zeros(128, np.int32),), outputs={0: False, 1: False},
    ),
    "a fence for the block's own threads only": Twins(
        FLAGS + """__global__ void k(int* o) {
             if (threadIdx.x) return;
             if (blockIdx.x == 0) {
               data[0] = 7;  // first
               @();
               STORE("volatile", &flag, 1);
             } else {
               int seen = 0;
               while (!seen) LOAD("volatile", &flag, seen);
               __threadfence();
               o[0] = data[0];  // second
             }
           }""",
        "__threadfence_block", "__threadfence", "write-read", "CTAs run in any order", grid=2, outputs={0: False},
    ),
    "a flag that is read without acquire": Twins(
        FLAGS + """__global__ void k(int* o) {
             if (blockIdx.x == 0) {
               o[threadIdx.x] = threadIdx.x;  // first
               __syncthreads();
               if (threadIdx.x == 0) STORE("release.gpu", &flag, 1);
             } else {
               int seen = 0;
               if (threadIdx.x == 0) while (!seen) LOAD("@.gpu", &flag, seen);
               __syncthreads();
               o[threadIdx.x] += 1;  // second
             }
           }""",
        "relaxed", "acquire", "write-read", "a flag was read, but no fence", grid=2, outputs={0: False},
    ),
    "look-back that publishes before it has written": Twins(
        FLAGS + """__device__ int state[16];
           __global__ void k(int* o) {
             if (threadIdx.x == 0) {
               int before = 0;
               if (blockIdx.x) {
                 int seen = 0;
                 while (!seen) LOAD("acquire.gpu", &state[blockIdx.x - 1], seen);
                 before = data[blockIdx.x - 1];  // second
               }
               data[blockIdx.x] = before + blockIdx.x;  // first
               o[blockIdx.x] = before;
               STORE("@.gpu", &state[blockIdx.x], 1);
             }
           }""",
        "relaxed", "release", "write-read", "CTAs run in any order", block=32, grid=4, elements=4,
    ),
    "a lock that is taken without acquire": Twins(
        """__device__ int lock;
           __global__ void k(int* o) {
             bool done = false;
             while (!done) {
               if (atomicCAS(&lock, 0, 1) == 0) {
                 @
                 o[0] = o[0] + 1;  // first second
                 __threadfence();
                 atomicExch(&lock, 0);
                 done = true;
               }
             }
           }""",
        "", "__threadfence();", "write-read", "a flag was read, but no fence", grid=2, outputs={0: False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_the_hazard_is_named_with_both_lines(name: str) -> None:
    twins = TWINS[name]
    with pytest.raises(DataRace) as caught:
        twins.run(twins.wrong)
    race = caught.value
    assert race.kind in twins.kind.split("|")
    assert twins.hint in str(race)
    lines = twins.text.replace("@", twins.wrong).splitlines()
    for where, mark in ((race.first, "first"), (race.location, "second")):
        assert where is not None
        assert where.line is not None
        assert mark in lines[where.line - 1].partition("//")[2] or "MARK" in lines[where.line - 1], str(race)
    assert str(race.first) in str(race)


@pytest.mark.parametrize("name", TWINS)
def test_its_corrected_twin_passes_and_computes_the_same_unchecked(name: str) -> None:
    twins = TWINS[name]
    checked, unchecked = twins.run(twins.right), twins.run(twins.right, DEFAULT_CHECKS - {"races"})
    for one, other in zip(checked, unchecked, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_race_names_threads_and_the_element_of_an_operand() -> None:
    # 70 blocks of 2048 lanes would not fit one wave of 131072: blocks 0 and 139 never run together.
    source = """__global__ void k(int* o, int last) {
                  if (threadIdx.x == 7) { if (blockIdx.x == 0 || blockIdx.x == last) o[5] = blockIdx.x; }
                  else if (threadIdx.x < 7) o[6 + blockIdx.x * 7 + threadIdx.x] = 2;
                }"""
    with pytest.raises(DataRace) as caught:
        run_cuda(source, "k", [np.zeros(2048, np.int32), Scalar("s32", 139)], grid=140, block=1024)
    assert "write-write race on 0[0, 5]: thread (7, 0, 0) of block (139, 0, 0) writes" in str(caught.value)
    assert "thread (7, 0, 0) of block (0, 0, 0) wrote" in str(caught.value)


def test_a_missing_wait_is_reported_as_such_when_the_copy_is_late() -> None:
    twins = replace(TWINS["a ring that waits for one stage too few"], schedule="latest")
    with pytest.raises(UninitializedRead, match="has not been waited for"):
        twins.run(twins.wrong)


def test_counters_do_not_depend_on_the_check() -> None:
    twins = TWINS["a copy into a stage that others still read"]
    text = twins.text.replace("@", twins.right)
    reports = [
        run_cuda(text, "k", [np.zeros(64, np.int32), NUMBERS], block=64, checks=checks)
        for checks in (DEFAULT_CHECKS, DEFAULT_CHECKS - {"races"})
    ]
    assert reports[0].counters == reports[1].counters
    assert reports[0].steps == reports[1].steps


def test_bytes_of_one_word_are_places_of_their_own() -> None:
    out = np.zeros(64, np.int32)
    run_cuda(
        """__global__ void k(int* o) {
             __shared__ uchar4 s[16];
             if (threadIdx.x < 16) s[threadIdx.x] = make_uchar4(1, 1, 1, 1);
             __syncthreads();
             unsigned char* bytes = reinterpret_cast<unsigned char*>(s);
             bytes[threadIdx.x] += threadIdx.x;  // four threads in one word
             o[threadIdx.x] = bytes[threadIdx.x];
           }""",
        "k", [out], block=64,
    )  # fmt: skip
    assert out.tolist() == [t + 1 for t in range(64)]


def test_a_thread_that_has_ended_has_arrived_at_all_barriers() -> None:
    out = np.zeros(32, np.int32)
    run_cuda(
        """__global__ void k(int* o) {
             __shared__ int s[96];
             s[threadIdx.x] = threadIdx.x;
             if (threadIdx.x >= 32) return;
             __syncthreads();
             o[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + 64];
           }""",
        "k", [out], block=96,
    )  # fmt: skip
    assert out.tolist() == [2 * t + 64 for t in range(32)]


def test_a_chain_of_blocks_hands_on_what_it_has_been_given() -> None:
    # Block i reads what every block before it wrote, and has a flag from its direct predecessor only.
    out = np.zeros(3, np.int32)
    run_cuda(
        FLAGS + """__device__ int state[12];
           __global__ void k(int* o) {
             __shared__ int sum;
             if (threadIdx.x == 0) sum = 0;
             if (threadIdx.x == 33 && blockIdx.x)
               for (int seen = 0; !seen;) LOAD("acquire.gpu", &state[blockIdx.x - 1], seen);
             __syncthreads();
             if (threadIdx.x < blockIdx.x) atomicAdd(&sum, data[threadIdx.x]);
             __syncthreads();
             if (threadIdx.x == 1) data[blockIdx.x] = sum + 1;
             __syncthreads();
             if (threadIdx.x == 0) o[blockIdx.x] = sum;
             if (threadIdx.x == 40) STORE("release.gpu", &state[blockIdx.x], 1);
           }""",
        "k", [out], block=64, grid=3,
    )  # fmt: skip
    assert out.tolist() == [2**i - 1 for i in range(3)]


COUNTED = (
    NAMED
    + """__global__ void k(int* o, const int* a) {
          __shared__ int s[32];
          if (threadIdx.x < 64) {
            SYNC(1, COUNT);
            o[threadIdx.x] = s[threadIdx.x % 32];
          } else {
            s[threadIdx.x - 64] = a[threadIdx.x];
            ARRIVE(1, COUNT);
          }
        }"""
)


def test_a_named_barrier_with_a_wrong_count() -> None:
    # Two warps consume what a third one produces. With 64 the consumers meet each other, with 128 they wait for nobody.
    def run(count: int) -> None:
        run_cuda(COUNTED.replace("COUNT", str(count)), "k", [np.zeros(64, np.int32), NUMBERS], block=96)

    run(96)
    with pytest.raises((DataRace, UninitializedRead), match=r"ld\.shared|read at kernel.cu:8 .* from shared"):
        run(64)
    with pytest.raises(Deadlock):
        run(128)
