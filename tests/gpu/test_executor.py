"""Launches on a real GPU: arguments arrive, streams are the caller's, limits are opted in to."""

import numpy as np
import pytest

from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.errors import DeviceError, UnsupportedError
from warptile.gpu import driver, loader
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec

pytestmark = pytest.mark.gpu


def _load(text, name="k", **options):
    kernel = compile_source(Source(text, name), driver.device_info().arch, cache=None, **options)
    return loader.load(kernel)


def _spec(loaded, *arguments, **changes):
    fields = {"grid": (1, 1, 1), "block": (32, 1, 1), "arguments": arguments}
    return LaunchSpec(loaded.kernel.entry, **{**fields, **changes})


def _doubles(memory, count):
    return memory.to_host(np.empty(count, np.float64))


ARGUMENTS = """
#include <cuda_fp16.h>
__global__ void k(double* d, int a, unsigned b, long long c, unsigned long long e, __half f, float g, double h,
                  const double* null, int last) {
  d[0] = a; d[1] = b; d[2] = c; d[3] = e; d[4] = __half2float(f); d[5] = g; d[6] = h; d[7] = null == nullptr;
  d[8] = last;
}
"""


def test_every_type_of_argument_arrives():
    loaded = _load(ARGUMENTS)
    values = (
        Scalar("s32", -5), Scalar("u32", 2**32 - 1), Scalar("s64", -(2**40)), Scalar("u64", 2**52),
        Scalar("f16", 1.5), Scalar("f32", 0.25), Scalar("f64", 1 / 3), Pointer(None), Scalar("s32", 42),
    )  # fmt: skip
    with driver.Allocation(8 * 16) as memory:
        memory.fill(0)
        loaded.launch(_spec(loaded, Pointer("D", 16), *values, block=(1, 1, 1)), {"D": memory.address})
        got = _doubles(memory, 16)
    assert got[:2].tolist() == [0, 0]
    assert got[2:11].tolist() == [-5, 2**32 - 1, -(2**40), 2**52, 1.5, 0.25, 1 / 3, 1, 42]


SHARED = """
extern __shared__ float tile[];
__global__ void k(float* d, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = i;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) d[i] = tile[n - 1 - i];
}
"""


@pytest.mark.parametrize("size_bytes", [4, 48 * 1024, 48 * 1024 + 4, None])
def test_dynamic_shared_memory_up_to_the_devices_limit(size_bytes):
    size_bytes = size_bytes or driver.device_info().shared_bytes_per_block
    loaded, count = _load(SHARED), size_bytes // 4
    with driver.Allocation(size_bytes) as memory:
        spec = _spec(loaded, Pointer("D"), Scalar("s32", count), dynamic_shared_bytes=size_bytes)
        loaded.launch(spec, {"D": memory.address})
        assert np.array_equal(memory.to_host(np.empty(count, np.float32)), np.arange(count)[::-1])
        assert loaded.ctas_per_sm(spec) >= 1


def test_one_byte_more_is_refused():
    loaded = _load(SHARED)
    most = driver.device_info().shared_bytes_per_block
    with pytest.raises(UnsupportedError, match=f"can have {most}"):
        loaded.launch(_spec(loaded, Pointer("D"), Scalar("s32", 1), dynamic_shared_bytes=most + 1), {"D": 0})


CLUSTER = """
__global__ void k(unsigned* d) {
  unsigned rank, size;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) d[blockIdx.x] = rank + 100 * size;
}
"""


@pytest.mark.parametrize("blocks", [1, 2, 4, 8, 16])
def test_clusters_have_the_shape_that_was_asked_for(blocks):
    if driver.device_info().capability < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    loaded = _load(CLUSTER)
    with driver.Allocation(4 * 32) as memory:
        loaded.launch(_spec(loaded, Pointer("D"), grid=(32, 1, 1), cluster=(blocks, 1, 1)), {"D": memory.address})
        got = memory.to_host(np.empty(32, np.uint32)).tolist()
    assert got == [block % blocks + 100 * blocks for block in range(32)]


ALL_ARRIVE = """
__global__ void k(unsigned* arrived, unsigned* d) {
  extern __shared__ char unused[];
  const unsigned ctas = gridDim.x;
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < ctas) __nanosleep(100);
    d[blockIdx.x] = ctas;
  }
}
"""


@pytest.mark.parametrize("size_bytes", [0, 128 * 1024])
@pytest.mark.parametrize("cluster", [1, 2, 4, 8, 16])
def test_as_many_ctas_as_the_driver_counts_can_wait_for_each_other(cluster, size_bytes):
    device = driver.device_info()
    if cluster > 1 and device.capability < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    size_bytes = min(size_bytes, device.shared_bytes_per_block)
    loaded = _load(ALL_ARRIVE)

    def spec(ctas):
        return _spec(
            loaded, Pointer("arrived"), Pointer("D"), grid=(ctas, 1, 1), cluster=(cluster, 1, 1), co_resident=True,
            dynamic_shared_bytes=size_bytes,
        )  # fmt: skip

    most = loaded.co_resident_ctas(spec(cluster))
    print(f"{device.name}: {most} CTAs in clusters of {cluster} with {size_bytes} bytes")
    if size_bytes:
        assert most >= device.limits.co_resident_ctas(cluster)
    with driver.Allocation(4) as arrived, driver.Allocation(4 * most) as memory:
        arrived.fill(0)
        loaded.launch(spec(most), {"arrived": arrived.address, "D": memory.address})
        assert set(memory.to_host(np.empty(most, np.uint32)).tolist()) == {most}
        with pytest.raises(UnsupportedError, match=f"{most + cluster} CTAs.* wait for each other.* holds {most}"):
            loaded.launch(spec(most + cluster), {"arrived": arrived.address, "D": memory.address})


SLOW_THEN_ADD = """
__global__ void k(float* d, int spins) {
  for (int i = 0; i < spins; i++) __nanosleep(1000);
  d[threadIdx.x] += 1;
}
"""


def test_launches_in_one_stream_follow_each_other():
    loaded = _load(SLOW_THEN_ADD)
    with driver.Stream() as stream, driver.Allocation(4 * 32) as memory:
        memory.fill(0)
        prepared = loaded.prepare(_spec(loaded, Pointer("D"), Scalar("s32", 5)), {"D": memory.address})
        for _ in range(50):
            prepared.launch(stream.handle)
        assert set(memory.to_host(np.empty(32, np.float32))) == {50.0}


def test_a_kernel_that_is_dropped_right_after_its_launch_still_ends():
    with driver.Allocation(4 * 32) as memory:
        memory.fill(0)
        loaded = _load(SLOW_THEN_ADD)
        loaded.launch(_spec(loaded, Pointer("D"), Scalar("s32", 20000)), {"D": memory.address})
        del loaded
        assert set(memory.to_host(np.empty(32, np.float32))) == {1.0}


def test_a_grid_without_blocks_does_nothing():
    loaded = _load(SLOW_THEN_ADD)
    loaded.launch(_spec(loaded, Pointer("D"), Scalar("s32", 1), grid=(0, 1, 1)), {"D": 0})
    driver.synchronize()


def test_a_launch_that_the_driver_refuses_says_with_what():
    loaded = _load(SLOW_THEN_ADD)
    with pytest.raises(DeviceError, match=r"block \(2048, 1, 1\)") as caught:
        loaded.launch(_spec(loaded, Pointer("D"), Scalar("s32", 1), block=(2048, 1, 1)), {"D": 0})
    assert caught.value.driver_name == "CUDA_ERROR_INVALID_VALUE"


def test_the_driver_agrees_with_the_compiler_about_resources():
    loaded = _load("__global__ void k(float* d) { __shared__ float s[300]; s[threadIdx.x] = d[0]; __syncthreads(); "
                   "d[threadIdx.x] = s[31 - threadIdx.x]; }")  # fmt: skip
    assert loaded.attribute("NUM_REGS") == loaded.kernel.resources.registers
    assert loaded.attribute("SHARED_SIZE_BYTES") == loaded.kernel.resources.static_shared_bytes == 1200
    assert loaded.attribute("LOCAL_SIZE_BYTES") == loaded.kernel.resources.stack_bytes == 0


def test_a_kernel_for_another_generation_is_refused():
    other = "sm_80" if driver.device_info().capability[0] != 8 else "sm_90a"
    kernel = compile_source(Source(SLOW_THEN_ADD, "k"), other, cache=None)
    with pytest.raises(UnsupportedError, match=driver.device_info().arch):
        loader.load(kernel)


def test_a_launch_can_be_captured_and_replayed():
    loaded = _load(SLOW_THEN_ADD)
    with driver.Stream() as stream, driver.Allocation(4 * 32) as memory:
        memory.fill(0)
        prepared = loaded.prepare(_spec(loaded, Pointer("D"), Scalar("s32", 1)), {"D": memory.address})
        prepared.launch(stream.handle)
        with driver.Graph.capture(stream.handle) as made:
            prepared.launch(stream.handle)
            prepared.launch(stream.handle)
        for _ in range(3):
            made[0].launch(stream.handle)
        assert set(memory.to_host(np.empty(32, np.float32))) == {7.0}


def test_torchs_tensors_and_current_stream_can_be_used():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    loaded = _load(SLOW_THEN_ADD)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = torch.zeros(32, device="cuda")
        spec = _spec(loaded, Pointer("D"), Scalar("s32", 1000))
        loaded.launch(spec, {"D": tensor.data_ptr()}, torch.cuda.current_stream().cuda_stream)
        # In the same stream, so it sees the kernel's result without any wait.
        doubled = tensor * 2
    stream.synchronize()
    assert doubled.tolist() == [2.0] * 32
