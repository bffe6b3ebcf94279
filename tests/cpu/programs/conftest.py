"""Programs of CUDA calls for the tests of `warptile run`: they know nothing of the emulator."""

import sys

import pytest

from warptile.cli.main import run
from warptile.codegen.nvrtc import ptx_alone
from warptile.codegen.translation_unit import Source

KERNELS = """
__device__ int calls;
__constant__ float factor;
__managed__ int both = 5;
struct Big { float* x; double offset; char pad[50]; };
extern "C" __global__ void scale(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
  if (i == 0) {
    atomicAdd(&calls, 1);
    both += 10;
    if (n < 0) printf("device %d\\n", n);
  }
}
extern "C" __global__ void shift(Big big) { big.x[threadIdx.x] += big.offset + big.pad[49]; }
extern "C" __global__ void gather(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x ^ 1]; }
extern "C" __global__ void reverse(float* x) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
struct Pair { int key; double value; };
extern "C" __global__ void pairs(Pair* y, Pair* x) {
  const int t = threadIdx.x;
  if (!y) { x[t].key = t; x[t].value = 2 * t; }
  else y[t] = x[t];
}
"""

PREAMBLE = """
import ctypes, struct, sys
from ctypes import byref, c_char, c_float, c_int, c_size_t, c_uint64, c_void_p
cuda = ctypes.CDLL("libcudart.so.13")
for name in ("cudaGetErrorName", "cudaGetErrorString"):
    getattr(cuda, name).restype = ctypes.c_char_p
cuda.__getattr__("__cudaRegisterFatBinary").restype = c_uint64
def ok(status):
    assert status == 0, (status, cuda.cudaGetErrorName(status), cuda.cudaGetErrorString(status))
fat = ctypes.create_string_buffer(open(sys.argv[1], "rb").read())
wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(fat), 0))
handle = c_void_p(cuda.__getattr__("__cudaRegisterFatBinary")(wrapper))
hosts = ctypes.create_string_buffer(64)
known = ("scale", "shift", "reverse", "gather", "pairs", "calls", "factor")
host = {name: ctypes.addressof(hosts) + 8 * i for i, name in enumerate(known)}
names = [ctypes.create_string_buffer(name.encode()) for name in host]
for name, text in list(zip(host, names))[:5]:
    cuda.__getattr__("__cudaRegisterFunction")(handle, c_void_p(host[name]), text, text, -1, *[None] * 5)
for name, text in list(zip(host, names))[5:]:
    cuda.__getattr__("__cudaRegisterVar")(handle, c_void_p(host[name]), text, text, 0, c_size_t(4), 0, 0)
def launch(kernel, grid, block, *arguments, shared=0):
    places = (c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
    extents = (c_uint64(1 << 32 | grid), c_uint64(1), c_uint64(1 << 32 | block), c_uint64(1))
    return cuda.cudaLaunchKernel(c_void_p(host[kernel]), *extents, places, c_size_t(shared), None)
def malloc(size):
    found = c_void_p()
    ok(cuda.cudaMalloc(byref(found), c_size_t(size)))
    return found
"""


@pytest.fixture(scope="module")
def fat(tmp_path_factory):
    """The path of a fat binary with `KERNELS`."""
    from fat_binaries import fat_binary, plain

    _, ptx = ptx_alone(Source(KERNELS, "scale"), "sm_90a")
    path = tmp_path_factory.mktemp("fat") / "kernels.fatbin"
    path.write_bytes(fat_binary((2, 0, b"\x7fELF", 0), plain(ptx.decode())))
    return path


@pytest.fixture
def program(tmp_path, fat, capfd):
    """Runs a program of CUDA calls; its exit code, and what it and the emulator have said."""

    def start(body, *options):
        path = tmp_path / "program.py"
        path.write_text(PREAMBLE + body)
        code = run(["run", *options, sys.executable, str(path), str(fat)])
        return code, *capfd.readouterr()

    return start
