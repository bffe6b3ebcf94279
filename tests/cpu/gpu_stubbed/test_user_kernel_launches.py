"""Users' kernels on a GPU whose driver records launches: addresses, copies of host arrays, and what is refused."""

import ctypes
import struct

import numpy as np
import pytest

import warptile as wt
from stubbed_gpu import StubbedGpu, stubbed_torch
from warptile.gpu import driver

SOURCE = (
    "struct S { float* x; int n; };\n__global__ void scale(float* x, float by, S s) { x[threadIdx.x] *= by * s.n; }"
)


@pytest.fixture
def launches(monkeypatch):
    """Launches as the driver gets them: the spec, the stream, and the bytes of each parameter."""
    StubbedGpu().install(monkeypatch)
    seen = []

    class Function(driver.Function):
        def set_attribute(self, name, value):
            pass

        def ctas_per_sm(self, threads, dynamic_shared_bytes):
            return 1

        def launch(self, spec, stream, parameters):
            slots = (ctypes.c_uint64 * 3).from_address(parameters)
            given = [ctypes.string_at(slot, size) for slot, size in zip(slots, (8, 4, 16), strict=True)]
            seen.append((spec, stream, given))
            x = (ctypes.c_float * 4).from_address(struct.unpack("<Q", given[0])[0])
            x[:] = [2 * each for each in x]

    monkeypatch.setattr(driver.Module, "function", lambda self, entry: Function(1, entry, 0))
    return seen


def test_host_arrays_are_copied_there_and_back(launches):
    x, y = np.arange(4, dtype=np.float32), np.zeros(8, np.float32)[1:5]
    made = wt.kernel(SOURCE, "scale")
    assert made[(3, 2), 128, 2, 1024](x, 0.5, wt.struct(x=y, n=7)) is None
    assert x.tolist() == [0, 2, 4, 6]
    spec, _, (pointer, by, record) = launches[0]
    assert (spec.grid, spec.block, spec.cluster, spec.dynamic_shared_bytes) == ((3, 2, 1), (128, 1, 1), (2, 1, 1), 1024)
    assert by == struct.pack("<f", 0.5)
    inner, n = struct.unpack("<Qi4x", record)
    assert n == 7
    assert inner % 256 == 4, "the view begins 4 bytes behind its allocation"
    assert struct.unpack("<Q", pointer)[0] % 256 == 0
    made[1, 4](x, 1.0, wt.struct(x=None, n=0))
    assert launches[1][2][2] == bytes(16)


def test_tensors_are_used_where_they_are(launches, monkeypatch):
    torch = stubbed_torch(monkeypatch)
    x = torch.Tensor(np.ones(4, np.float32), torch.float32)
    x.element_size, x.storage_offset = lambda: 4, lambda: 0
    monkeypatch.setattr(torch, "cuda", type("cuda", (), {"current_stream": lambda device: _Stream}), raising=False)
    wt.kernel(SOURCE, "scale")[1, 4](x, 2.0, wt.struct(x=x, n=1))
    _, stream, (pointer, _, record) = launches[0]
    assert stream == _Stream.cuda_stream
    assert struct.unpack("<Q", pointer)[0] == struct.unpack("<Q", record[:8])[0] == x.data_ptr()
    with pytest.raises(wt.LayoutError, match=r"arg0 is in cuda:0 and arg2\.x in host memory"):
        wt.kernel(SOURCE, "scale")[1, 4](x, 2.0, wt.struct(x=np.ones(4, np.float32), n=1))
    with pytest.raises(wt.LayoutError, match=r"arg0 is on cuda:0 and the emulator takes arrays in host memory"):
        wt.kernel(SOURCE, "scale", backend="emulator")[1, 4](x, 2.0, wt.struct(x=x, n=1))


class _Stream:
    cuda_stream = 0x5EED


def test_a_cooperative_launch_fits_the_gpu(launches):
    x = np.ones(4, np.float32)
    made = wt.kernel(SOURCE, "scale", cooperative=True)
    made[132, 4](x, 2.0, wt.struct(x=x, n=1))
    assert launches[0][0].cooperative
    with pytest.raises(wt.UnsupportedError, match="its 133 CTAs wait for each other"):
        made[133, 4](x, 2.0, wt.struct(x=x, n=1))
