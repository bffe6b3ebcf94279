"""The driver binding against a real driver: memory, streams, events, contexts, and errors by name."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import warptile as wt
from warptile.arch import ARCHES
from warptile.errors import DeviceError, LayoutError
from warptile.gpu import driver

pytestmark = pytest.mark.gpu


def test_the_device_describes_itself():
    device = driver.device_info()
    assert device.arch in ARCHES
    assert device.multiprocessors > 0
    assert device.memory_bytes > 2**30
    assert device.l2_bytes > 2**20
    assert device.shared_bytes_per_block == ARCHES[device.arch].shared_bytes_per_block
    assert device.driver_cuda >= (13, 0)
    assert len(device.uuid) == len("GPU-") + 36
    assert device.clock_hz > 5e8
    assert driver.device_count() >= 1


MEETING = """
extern "C" __global__ void meeting(unsigned* arrived, unsigned* met) {
    if (threadIdx.x != 0) return;
    atomicAdd(arrived, 1);
    const long long start = clock64();
    unsigned seen = 0;
    while (seen < gridDim.x && clock64() - start < 100000000) seen = *reinterpret_cast<volatile unsigned*>(arrived);
    if (seen >= gridDim.x) atomicAdd(met, 1);
}
"""


@pytest.mark.skipif(not driver.available() or driver.device_info().capability < (9, 0), reason="needs clusters")
def test_as_many_ctas_in_clusters_as_the_driver_counts_meet():
    info = driver.device_info()
    kernel = wt.kernel(MEETING, backend="gpu")
    for size, ctas in enumerate(info.limits.clustered, 1):
        assert 0 < ctas <= info.multiprocessors
        arrived, met = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
        kernel[ctas, 32, size, info.shared_bytes_per_block](arrived, met)
        assert (arrived[0], met[0]) == (ctas, ctas), size


@pytest.mark.parametrize("shape", [(1,), (193, 161), (1023, 1025)])
def test_what_is_copied_there_comes_back(shape):
    sent = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    with driver.Allocation.from_array(sent) as memory:
        assert memory.address % 256 == 0
        assert np.array_equal(memory.to_host(np.empty_like(sent)), sent)


def test_parts_are_copied_to_their_offset_and_no_further():
    with driver.Allocation(64) as memory:
        memory.fill(0xAB)
        memory.from_host(np.arange(4, dtype=np.uint8), offset_bytes=30)
        back = memory.to_host(np.empty(64, np.uint8))
        assert back[30:34].tolist() == [0, 1, 2, 3]
        assert set(back[:30]) | set(back[34:]) == {0xAB}
        with pytest.raises(LayoutError):
            memory.from_host(np.zeros(65, np.uint8))


def test_an_empty_allocation_is_legal():
    with driver.Allocation(0) as memory:
        memory.fill(1)
        assert memory.to_host(np.empty(0, np.float32)).size == 0


def test_more_memory_than_there_is_is_an_error_by_name():
    with pytest.raises(DeviceError, match="allocating") as caught:
        driver.Allocation(2**50)
    assert caught.value.driver_name == "CUDA_ERROR_OUT_OF_MEMORY"


def test_a_broken_cubin_is_an_error_by_name():
    with pytest.raises(DeviceError, match="loading a cubin") as caught:
        driver.Module(b"\x7fELF but nothing else" * 10)
    assert caught.value.driver_name.startswith("CUDA_ERROR_")


def test_time_passes_between_events():
    with driver.Stream() as stream, driver.Allocation(2**26) as memory, driver.Event() as start, driver.Event() as end:
        start.record(stream.handle)
        memory.fill(3)
        end.record(stream.handle)
        end.synchronize()
        assert start.elapsed_ms(end) >= 0.0
        stream.synchronize()


def test_events_that_were_never_recorded_are_an_error():
    with driver.Event() as start, driver.Event() as end, pytest.raises(DeviceError, match="time between events"):
        start.elapsed_ms(end)


def test_another_thread_finds_its_context():
    seen = []

    def work():
        with driver.Allocation.from_array(np.arange(10)) as memory:
            seen.append(memory.to_host(np.empty(10, np.int64)).tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [list(range(10))]


_FAULT = """
from warptile.codegen.nvrtc import compile_source
from warptile.errors import DeviceError
from warptile.gpu import driver, loader
from warptile.launch.params import Scalar
from warptile.launch.spec import LaunchSpec
from warptile.codegen.translation_unit import Source
text = "__global__ void k(unsigned long long a) { *(float*)a = 1; }"
kernel = compile_source(Source(text, "k"), driver.device_info().arch, cache=None)
loaded = loader.load(kernel)
memory = driver.Allocation(16)
loaded.launch(LaunchSpec(kernel.entry, (1, 1, 1), (32, 1, 1), (Scalar("u64", 64),)), {})
try:
    driver.synchronize()
except DeviceError as error:
    print(error.driver_name, "start a new process" in str(error))
"""


def test_a_fault_of_a_kernel_shows_at_the_next_wait_and_the_process_still_ends_well():
    done = subprocess.run([sys.executable, "-c", _FAULT], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "CUDA_ERROR_ILLEGAL_ADDRESS True\n", done.stderr
    assert done.returncode == 0
    assert done.stderr == ""


_EXIT = """
import numpy as np
from warptile.gpu import driver
kept = [driver.Allocation(1 << 20), driver.Stream(), driver.Event()]
kept[0].fill(0)
"""


def test_objects_that_are_never_closed_do_not_disturb_the_exit():
    done = subprocess.run([sys.executable, "-c", _EXIT], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_torch_and_warptile_share_memory_and_streams():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    tensor = torch.arange(64, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    before = driver.current_device()
    ours = driver.Allocation(256)
    ours.from_host(np.full(64, 7, np.float32))
    assert driver.current_device() == before == torch.cuda.current_device()
    side = torch.cuda.Stream()
    driver.synchronize_stream(side.cuda_stream)
    assert float((tensor + 1).sum()) == 64 * 65 / 2
    ours.close()
    assert float(tensor.sum()) == 64 * 63 / 2
