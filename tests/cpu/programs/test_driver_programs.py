"""Programs of the CUDA driver under `warptile run`: streams, graphs, attributes, and arguments in one buffer."""

import sys

import pytest

from warptile.cli.main import run
from warptile.codegen.nvrtc import ptx_alone
from warptile.codegen.translation_unit import Source

KERNELS = """
__device__ int table[4];
extern "C" __global__ void __launch_bounds__(256) mix(char tag, float* y, short n, double by) {
  __shared__ float tile[256];
  tile[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < n) y[threadIdx.x] = tile[n - 1 - threadIdx.x] * (float)by + tag;
}
"""

PREAMBLE = """
import ctypes, struct, sys
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
def ok(status):
    assert status == 0, status
def made(function, *arguments, kind=c_void_p):
    found = kind()
    ok(getattr(cuda, function)(byref(found), *arguments))
    return found.value
ok(cuda.cuInit(0))
context = made("cuDevicePrimaryCtxRetain", 0)
ok(cuda.cuCtxSetCurrent(c_void_p(context)))
module = c_void_p(made("cuModuleLoadData", open(sys.argv[1], "rb").read()))
kernel = c_void_p(made("cuModuleGetFunction", module, b"mix"))
stream = c_void_p(made("cuStreamCreateWithPriority", 1, -1))
y = c_void_p(made("cuMemAllocAsync", c_size_t(1024), stream, kind=c_uint64))
host = (c_float * 256)(*range(256))
"""


@pytest.fixture
def driver_program(tmp_path, capfd):
    """Runs a program of the driver; its exit code, and what it and the emulator have said."""

    def start(body):
        _, ptx = ptx_alone(Source(KERNELS, "mix"), "sm_90a")
        (tmp_path / "mix.ptx").write_bytes(ptx)
        (tmp_path / "program.py").write_text(PREAMBLE + body)
        code = run(["run", sys.executable, str(tmp_path / "program.py"), str(tmp_path / "mix.ptx")])
        return code, *capfd.readouterr()

    return start


def test_arguments_in_one_buffer(driver_program):
    body = """
content = struct.pack("<b7xQh6xd", 7, y.value, 10, 2.0)
buffer, size = ctypes.create_string_buffer(content), c_size_t(len(content))
extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), None)
ok(cuda.cuMemcpyHtoDAsync_v2(y, host, c_size_t(1024), stream))
ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, stream, None, extra))
ok(cuda.cuMemcpyDtoHAsync_v2(host, y, c_size_t(1024), stream))
print(list(host)[:11])
print(cuda.cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, stream, None, None))
offset, size = c_size_t(), c_size_t()
while not cuda.cuFuncGetParamInfo(kernel, c_size_t(len(extra) - 5), byref(offset), byref(size)):
    print(offset.value, size.value)
    extra = (*extra, None)
"""
    code, out, err = driver_program(body)
    assert out.splitlines()[0] == str([7.0 + 2 * (9 - i) for i in range(10)] + [10.0])
    assert out.splitlines()[1:6] == ["1", "0 1", "8 8", "16 2", "24 8"]
    assert "mix has 4 parameters, and no arguments are given" in err
    assert code == 1  # a launch was refused


def test_a_graph_of_asynchronous_work(driver_program):
    body = """
def status():
    found = c_int(-1)
    ok(cuda.cuStreamGetCaptureInfo_v2(stream, byref(found), None, None, None, None))
    return found.value
values = ctypes.c_byte(1), y, ctypes.c_short(256), ctypes.c_double(1)
places = (c_void_p * 4)(*(ctypes.addressof(each) for each in values))
before = status()
ok(cuda.cuStreamBeginCapture_v2(stream, 0))
during = status()
ok(cuda.cuMemcpyHtoDAsync_v2(y, host, c_size_t(1024), stream))
ok(cuda.cuMemsetD16Async(c_void_p(y.value + 8), ctypes.c_ushort(0x4000), c_size_t(2), stream))
ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, stream, places, None))
ok(cuda.cuMemcpyDtoHAsync_v2(host, y, c_size_t(1024), stream))
graph = c_void_p()
ok(cuda.cuStreamEndCapture(stream, byref(graph)))
print(before, during, status(), host[0])
ready = c_void_p(made("cuGraphInstantiateWithFlags", graph, c_uint64(0)))
start, end = (c_void_p(made("cuEventCreate", 0)) for _ in range(2))
ok(cuda.cuEventRecord(start, stream))
ok(cuda.cuGraphLaunch(ready, stream))
ok(cuda.cuEventRecordWithFlags(end, stream, 0))
ok(cuda.cuStreamWaitEvent(stream, end, 0))
ok(cuda.cuEventQuery(end))
ok(cuda.cuStreamQuery(stream))
print(host[0], host[255], host[253], made("cuEventElapsedTime", start, end, kind=c_float) > 0)
ok(cuda.cuGraphExecDestroy(ready))
ok(cuda.cuGraphDestroy(graph))
ok(cuda.cuMemFreeAsync(y, stream))
"""
    code, out, err = driver_program(body)
    assert code == 0, err
    assert out.splitlines()[:2] == ["0 1 0 0.0", f"256.0 1.0 {2.00390625 + 1} True"]


def test_what_the_driver_tells_of_kernels_and_pointers(driver_program):
    body = """
limits = [made("cuFuncGetAttribute", kind, kernel, kind=c_int) for kind in (0, 1, 8, 9)]
print(limits, cuda.cuFuncGetAttribute(byref(c_int()), 99, kernel))
grid, block = c_int(), c_int()
ok(cuda.cuOccupancyMaxPotentialBlockSize(byref(grid), byref(block), kernel, None, c_size_t(60000), 0))
print(grid.value, block.value)
sized = ctypes.CFUNCTYPE(c_size_t, c_int)(lambda threads: 1000 * threads)
ok(cuda.cuOccupancyMaxPotentialBlockSize(byref(grid), byref(block), kernel, sized, c_size_t(0), 0))
print(grid.value, block.value)
inside = c_void_p(y.value + 12)
print([made("cuPointerGetAttribute", kind, inside, kind=c_int) for kind in (2, 9)],
      made("cuPointerGetAttribute", 11, inside, kind=c_uint64) == y.value,
      made("cuPointerGetAttribute", 12, inside, kind=c_uint64),
      made("cuPointerGetAttribute", 8, inside, kind=ctypes.c_bool))
start, size, table = c_uint64(), c_size_t(), c_uint64()
ok(cuda.cuMemGetAddressRange_v2(byref(start), byref(size), inside))
print(start.value == y.value, size.value, cuda.cuPointerGetAttribute(byref(c_int()), 2, host))
kinds = (c_int * 2)(2, 3)
found = c_int(-1), c_uint64(1)
ok(cuda.cuPointerGetAttributes(2, kinds, (c_void_p * 2)(*map(ctypes.addressof, found)), host))
print([each.value for each in found])
ok(cuda.cuModuleGetGlobal_v2(byref(table), byref(size), module, b"table"))
print(size.value, made("cuModuleGetFunctionCount", module, kind=ctypes.c_uint))
"""
    code, out, err = driver_program(body)
    assert code == 0, err
    multiprocessors, shared = 132, 233472
    fitting = shared // (60000 + 1024 + 1024)
    assert out.splitlines()[:7] == [
        "[256, 1024, 49152, -1] 1",
        f"{fitting * multiprocessors} 256",
        f"{shared // (224 * 1000 + 2048) * multiprocessors} 224",
        "[2, 0] True 1024 False",
        "True 1024 1",
        "[0, 0]",
        "16 1",
    ]


def test_planes_between_host_and_device(driver_program):
    body = """
def copy(source, target, width, height):
    parameters = struct.pack("<2QI4x4Q2QI4x4Q2Q", *source, *target, width, height)
    return cuda.cuMemcpy2DAsync_v2(ctypes.create_string_buffer(parameters), stream)
on_host = lambda x, row, pitch: (x, row, 1, ctypes.addressof(host), 0, 0, pitch)
on_device = lambda x, row, pitch: (x, row, 2, 0, y.value, 0, pitch)
ok(copy(on_host(4, 2, 64), on_device(8, 1, 32), 12, 3))  # rows of 16 and of 8 elements
back = (c_float * 256)()
ok(cuda.cuMemsetD32Async(y, 0, c_size_t(10), stream))
ok(cuda.cuMemcpyDtoH_v2(back, c_void_p(y.value + 40), c_size_t(12)))
print(back[0], cuda.cuMemcpy2D_v2(ctypes.create_string_buffer(struct.pack("<2QI4x4Q2QI4x4Q2Q", 0, 0, 3, *[0] * 13))))
ok(copy(on_device(8, 2, 32), on_host(0, 0, 64), 12, 2))
print(list(host)[:4], list(host)[16:19])
"""
    code, out, err = driver_program(body)
    assert out.splitlines()[:2] == ["33.0 801", "[49.0, 50.0, 51.0, 3.0] [65.0, 66.0, 67.0]"], err
    assert "copies of arrays by the driver's functions are not emulated" in err
    assert code == 0, err


def test_undocumented_functions_are_named(driver_program):
    code, out, err = driver_program("print(cuda.cuGetExportTable(byref(c_void_p()), bytes(16)))\n")
    assert (code, out.splitlines()[0]) == (0, "801")
    assert "linked with the static CUDA runtime" in err
