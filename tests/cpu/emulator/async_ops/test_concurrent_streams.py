"""Streams beside a launch: copies and flags that a kernel waits for, and that wait for a kernel."""

import numpy as np
import pytest

from tensor_product import ptx_once
from warptile.codegen.translation_unit import Source
from warptile.emulator import emulate
from warptile.errors import DataRace, IllegalAddress, UninitializedRead, UnsupportedError
from warptile.launch.access import Access
from warptile.launch.concurrent_stream import ConcurrentStream, StreamCopy, StreamFlag, StreamWait
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

KERNELS = """
__device__ unsigned ld_acquire(const unsigned* flag) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
__device__ void st_release(unsigned* flag, unsigned value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
// Adds 1 to what arrives, and says when it has.
__global__ void received(unsigned* in, unsigned* out, unsigned* flags) {
    if (threadIdx.x == 0)
        while (!ld_acquire(flags)) {
        }
    __syncthreads();
    out[threadIdx.x] = in[threadIdx.x] + 1;
    __syncthreads();
    if (threadIdx.x == 0) st_release(flags + 1, 1);
}
// The same, whose flag does not order what other threads have written.
__global__ void announced_early(unsigned* in, unsigned* out, unsigned* flags) {
    if (threadIdx.x == 0) {
        while (!ld_acquire(flags)) {
        }
        st_release(flags + 1, 1);
    }
    __syncthreads();
    out[threadIdx.x] = in[threadIdx.x] + 1;
}
"""
THREADS = 64
BYTES = 4 * THREADS
THERE = StreamCopy("there", "in", BYTES), StreamFlag("flags")
BACK = StreamWait("flags", 4), StreamCopy("out", "back", BYTES)


def run(*streams, kernel="received", blocks=1, **options):
    entry, ptx = ptx_once(Source(KERNELS, kernel), "sm_90a")
    names = ("in", "out", "flags")
    arrays = {name: np.zeros(THREADS, np.uint32) for name in (*names, "back")}
    arrays["there"] = np.arange(THREADS, dtype=np.uint32)
    spec = LaunchSpec(entry, (blocks, 1, 1), (THREADS, 1, 1), tuple(map(Pointer, names)))
    writable = {name: Access(writes=True) for name in (*names, "back")}
    beside = [ConcurrentStream(f"stream {number}", each) for number, each in enumerate(streams)]
    emulate(parse(ptx), spec, arrays, accesses=writable, arch="sm_90a", beside=beside, **options)
    return arrays


@pytest.mark.parametrize("schedule", ["latest", "earliest", *(f"random:{seed}" for seed in range(3))])
def test_rows_arrive_and_leave_while_a_kernel_runs(schedule):
    for streams in ((THERE, BACK), (THERE + BACK,)):
        found = run(*streams, schedule=schedule)
        assert found["back"].tolist() == list(range(1, THREADS + 1))
        assert found["flags"][:2].tolist() == [1, 1]


def test_without_the_race_check_results_are_the_same():
    assert run(THERE, BACK, checks=frozenset())["back"].tolist() == list(range(1, THREADS + 1))


def test_a_stream_that_reads_what_a_kernel_has_not_finished_is_reported():
    with pytest.raises(DataRace, match="of stream 'stream 1', beside the launch, reads it"):
        run(THERE, BACK, kernel="announced_early")
    with pytest.raises(DataRace, match="beside the launch"):
        run(THERE, BACK[1:])


def test_a_kernel_that_reads_what_is_on_its_way_is_reported():
    with pytest.raises(UninitializedRead, match="it was started at operation 1 of stream 'stream 0'"):
        run(THERE[::-1])


def test_streams_of_one_launch_race_with_each_other():
    with pytest.raises(DataRace, match="operation 0 of stream 'stream 1'"):
        run(THERE, (StreamCopy("there", "in", 16),), schedule="earliest")


def test_what_a_stream_uses_has_to_be_there():
    with pytest.raises(IllegalAddress, match="in has 256 bytes; a stream uses bytes 16 to 271"):
        run((StreamCopy("there", "in", BYTES, target_offset_bytes=16),))
    with pytest.raises(UnsupportedError, match=r"beside: .* launch fewer"):
        run(THERE, blocks=1 << 20)


def test_operations_say_what_they_are():
    assert [str(each) for each in (*THERE, *BACK)] == [
        "copy of 256 bytes of there to in+0",
        "write of 1 to flags+0",
        "wait for flags+4 to be 1",
        "copy of 256 bytes of out to back+0",
    ]
    assert ConcurrentStream("s", THERE + BACK).operands == ("there", "in", "flags", "out", "back")
