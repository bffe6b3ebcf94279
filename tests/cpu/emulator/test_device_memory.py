"""Memory that outlives launches: addresses that stay, what copies carry, and what is said of memory that is gone."""

import numpy as np
import pytest

from emulation import compiled
from warptile.emulator import DeviceMemory, emulate
from warptile.emulator.async_ops.tensor_boxes import decode, encode
from warptile.errors import IllegalAddress, UninitializedRead
from warptile.launch.params import Scalar
from warptile.launch.spec import LaunchSpec
from warptile.launch.tensor_map import TensorMap

COUNT = """
__device__ int launches = 5;
__constant__ int step;
__global__ void count(int** chain, int* x) {
  if (threadIdx.x == 0) { launches += step; *chain[0] = launches; }
  x[threadIdx.x] += 1;
}
"""


def launch(device, text, name, addresses, threads=4):
    entry, module = compiled(text, name, "sm_90a")
    arguments = tuple(Scalar("u64", address) for address in addresses)
    return emulate(module, LaunchSpec(entry, (1, 1, 1), (threads, 1, 1), arguments), {}, arch="sm_90a", device=device)


def test_launches_share_memory_and_variables():
    """Pointers that lie in memory work, as addresses stay; a variable keeps what the last launch gave it."""
    device = DeviceMemory()
    x = device.place("x", np.zeros(4, np.int32))
    told = device.place("told", np.zeros(1, np.int32))
    chain = device.place("chain", np.array([told], np.uint64))
    _, module = compiled(COUNT, "count", "sm_90a")
    variables = device.load(module)
    device.write(variables["step"], np.array([3], np.int32).view(np.uint8))
    for _ in range(2):
        launch(device, COUNT, "count", (chain, x))
    assert np.frombuffer(device.read(x, 16), np.int32).tolist() == [2, 2, 2, 2]
    assert np.frombuffer(device.read(told, 4), np.int32).tolist() == [11]
    assert np.frombuffer(device.read(variables["launches"], 4), np.int32).tolist() == [11]


def test_memory_that_was_never_written_stays_so_through_launches_and_copies():
    device = DeviceMemory()
    chain = device.place("chain", np.array([device.place("told", bytes(4))], np.uint64))
    x, y = device.allocate("x", 16), device.allocate("y", 16)
    with pytest.raises(UninitializedRead, match=r"x\+0, which nothing has written"):
        launch(device, COUNT, "count", (chain, x))
    device.fill(x, b"\1\0\0\0", 3)
    launch(device, COUNT, "count", (chain, x), threads=3)
    device.copy(y, x, 16)
    launch(device, COUNT, "count", (chain, y), threads=3)
    assert np.frombuffer(device.read(y, 12), np.int32).tolist() == [3, 3, 3]
    with pytest.raises(UninitializedRead, match=r"y\+12"):
        launch(device, COUNT, "count", (chain, y))
    device.write(y + 12, bytes(4))
    launch(device, COUNT, "count", (chain, y))


def test_what_is_said_of_freed_memory():
    device = DeviceMemory()
    chain = device.place("chain", np.array([device.place("told", bytes(4))], np.uint64))
    x = device.place("x", bytes(16))
    device.free(x)
    with pytest.raises(IllegalAddress, match=r"x\+0, but x has been freed"):
        launch(device, COUNT, "count", (chain, x))
    for broken, said in (
        (lambda: device.read(x, 4), "copy from the device, 4 bytes at .*: x has been freed"),
        (lambda: device.free(x), "free of .*: x has been freed already"),
        (lambda: device.free(chain + 8), "no allocation begins there"),
        (lambda: device.write(chain, bytes(9)), "chain has 8 bytes, and 9 bytes from byte 0 on are wanted"),
        (lambda: device.fill(1, b"\0", 1), "memset, 1 bytes at 0x1: it lies in no allocation"),
    ):
        with pytest.raises(IllegalAddress, match=said):
            broken()


def test_memory_grows_and_freed_memory_is_used_when_there_is_no_other():
    device = DeviceMemory(4096)
    first = device.place("first", bytes(range(200)))
    held = [device.place(f"held {i}", bytes([i]) * 1000) for i in range(2)]
    device.free(first)
    again = device.allocate("again", 700)
    assert again not in (first, *held), "there was room behind the others"
    small = device.allocate("small", 100)
    assert small == first, "there was none left"
    large = device.place("large", bytes(100_000))
    assert large > again
    assert [device.read(each, 1000) for each in held] == [bytes([i]) * 1000 for i in range(2)]
    starts = [home.start for home in device.space.allocations]
    assert starts == sorted(starts)


def test_a_map_survives_the_bit_that_cutlass_clears():
    """CUTLASS clears bit 21 of the second 64-bit word of maps of small tensors, wherever these lie."""
    tensor = TensorMap("x", "f32", (64,), (), (32,))
    raw = np.frombuffer(encode(tensor, 0x7F00_0020_0000), np.uint64).copy()
    raw[1] &= np.uint64(~(1 << 21) & (2**64 - 1))
    assert decode(raw.tobytes(), "x") == (tensor, 0x7F00_0020_0000)
