"""`warptile run`: programs that know nothing of the emulator, from their first CUDA call to their exit code."""

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from warptile.cli.main import run
from warptile.codegen.nvrtc import ptx_alone
from warptile.codegen.translation_unit import Source
from warptile.programs import memory_size
from warptile.programs.device_calls import Properties12
from warptile.programs.elf_file import ElfFile
from warptile.programs.memory_size import device_bytes
from warptile.programs.run_program import read_program

pytestmark = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="whole programs run on x86-64 Linux"
)

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


def test_memory_variables_launches_and_events(program):
    code, out, err = program("""
n = 300
x = (c_float * n)(*range(n))
device = malloc(4 * n)
ok(cuda.cudaMemcpyToSymbol(c_void_p(host["factor"]), byref(c_float(3)), c_size_t(4), c_size_t(0), 1))
ok(cuda.cudaMemcpy(device, x, c_size_t(4 * n), 1))
stream, events = c_void_p(), (c_void_p(), c_void_p())
ok(cuda.cudaStreamCreate(byref(stream)))
for event in events:
    ok(cuda.cudaEventCreate(byref(event)))
    ok(cuda.cudaEventRecord(event, stream))
    ok(launch("scale", 3, 128, device, c_int(n)))
ok(cuda.cudaStreamSynchronize(stream))
milliseconds = c_float(-1)
ok(cuda.cudaEventElapsedTime(byref(milliseconds), *events))
assert 0 < milliseconds.value < 1e6
big = ctypes.create_string_buffer(struct.pack("<Qd50s", device.value, 100.0, bytes(49) + b"\\5"), 72)
ok(launch("shift", 1, 300, big))
ok(cuda.cudaMemcpy(x, device, c_size_t(4 * n), 4))
assert list(x) == [9 * i + 105 for i in range(n)]
count = c_int()
ok(cuda.cudaMemcpyFromSymbol(byref(count), c_void_p(host["calls"]), c_size_t(4), c_size_t(0), 2))
print("calls", count.value)
ok(cuda.cudaMemset(device, 1, c_size_t(4 * n)))
other = malloc(4 * n)
ok(cuda.cudaMemcpy(other, device, c_size_t(4 * n), 3))
ok(cuda.cudaMemcpy(x, other, c_size_t(8), 2))
assert bytes(x)[:9] == b"\\1" * 8 + bytes(x)[8:9]
ok(cuda.cudaFree(device))
sys.exit(7)
""")
    assert code == 7, err
    assert out == "calls 2\n"
    assert "scale" in err
    assert "shift" in err


def test_kernels_have_names(program):
    code, _, err = program("""
found = ctypes.c_char_p()
ok(cuda.cudaFuncGetName(byref(found), c_void_p(host["gather"])))
assert found.value == b"gather"
assert cuda.cudaFuncGetName(byref(found), c_void_p(host["calls"])) == 98
""")
    assert code == 0, err


def test_what_kernels_print_is_in_order(program):
    code, out, err = program("""
libc = ctypes.CDLL(None)
libc.printf(b"before\\n")
ok(launch("scale", 1, 32, malloc(4), c_int(-1)))
libc.printf(b"after\\n")
""")
    assert code == 0, err
    assert out == "before\ndevice -1\nafter\n"


def test_memory_that_host_and_device_share(program):
    code, _, err = program("""
for allocate in ("cudaMallocManaged", "cudaMallocHost"):
    address = c_void_p()
    ok(getattr(cuda, allocate)(byref(address), c_size_t(40_000), 1))
    shared = (c_float * 10_000).from_address(address.value)
    shared[:] = [2.0] * 10_000
    big = ctypes.create_string_buffer(struct.pack("<Qd50s", address.value + 4, 0.5, bytes(50)), 72)
    ok(launch("shift", 1, 100, big))
    ok(cuda.cudaDeviceSynchronize())
    assert shared[:102] == [2.0] + [2.5] * 100 + [2.0], shared[:102]
    ok(cuda.cudaMemset(address, 0, c_size_t(8)))
    assert shared[:3] == [0, 0, 2.5]
    ok(cuda.cudaFree(address) if allocate == "cudaMallocManaged" else cuda.cudaFreeHost(address))
""")
    assert code == 0, err


def test_registered_memory_of_the_host_has_an_address_on_the_device(program):
    code, _, err = program("""
class Attributes(ctypes.Structure):
    _fields_ = [("type", c_int), ("device", c_int), ("on_device", c_void_p), ("on_host", c_void_p)]
def attributes(address):
    found = Attributes()
    ok(cuda.cudaPointerGetAttributes(byref(found), c_void_p(address)))
    return found.type, found.on_device, found.on_host
numbers, device = (c_float * 100)(*range(100)), c_void_p()
start, size = ctypes.addressof(numbers), c_size_t(400)
assert attributes(start)[0] == 0
assert cuda.cudaHostGetDevicePointer(byref(device), c_void_p(start), 0) == 1
ok(cuda.cudaHostRegister(c_void_p(start), size, 0))
assert cuda.cudaHostRegister(c_void_p(start + 8), size, 0) == 712
ok(cuda.cudaHostGetDevicePointer(byref(device), c_void_p(start + 8), 0))
assert attributes(start + 8) == (1, device.value, start + 8)
for _ in range(2):
    big = ctypes.create_string_buffer(struct.pack("<Qd50s", device.value, 0.5, bytes(50)), 72)
    ok(launch("shift", 1, 32, big))
    ok(cuda.cudaDeviceSynchronize())
    numbers[3] += 10
assert numbers[:5] == [0, 1, 3, 24, 5] and numbers[33:35] == [34, 34], numbers[:]
ok(cuda.cudaHostUnregister(c_void_p(start)))
assert cuda.cudaHostUnregister(c_void_p(start)) == 713
assert launch("shift", 1, 32, big) == 0 and cuda.cudaDeviceSynchronize() == 700
""")
    assert re.search(r"cudaHostRegister \d+ has been freed", " ".join(err.split()))
    assert code == 1
    code, _, err = program("""
for allocate, kind in (("cudaMallocManaged", 3), ("cudaMallocHost", 1), ("cudaMalloc", 2)):
    found, address = (c_int * 6)(), c_void_p()
    ok(getattr(cuda, allocate)(byref(address), c_size_t(64), 1))
    ok(cuda.cudaPointerGetAttributes(found, address))
    assert found[0] == kind, (allocate, found[0])
""")
    assert code == 0, err


def test_managed_variables(program):
    code, _, err = program("""
pointer, text = c_void_p(), ctypes.create_string_buffer(b"both")
cuda.__getattr__("__cudaRegisterManagedVar")(handle, byref(pointer), text, text, 0, c_size_t(4), 0, 0)
both = c_int.from_address(pointer.value)
assert both.value == 5
both.value = 100
ok(launch("scale", 1, 32, malloc(4), c_int(0)))
ok(cuda.cudaDeviceSynchronize())
assert both.value == 110, both.value
""")
    assert code == 0, err


def test_graphs_that_are_captured(program):
    code, _, err = program("""
x, back = (c_float * 64)(*range(64)), (c_float * 64)()
device, stream, graph, ready, status = malloc(256), c_void_p(), c_void_p(), c_void_p(), c_int()
ok(cuda.cudaMemcpyToSymbol(c_void_p(host["factor"]), byref(c_float(2)), c_size_t(4), c_size_t(0), 1))
assert cuda.cudaStreamBeginCapture(None, 0) == 900
ok(cuda.cudaStreamCreate(byref(stream)))
ok(cuda.cudaStreamBeginCapture(stream, 0))
ok(cuda.cudaMemcpyAsync(device, x, c_size_t(256), 1, stream))
ok(launch("scale", 1, 64, device, c_int(64)))
ok(cuda.cudaMemcpyAsync(back, device, c_size_t(256), 2, stream))
ok(cuda.cudaStreamIsCapturing(stream, byref(status)))
ok(cuda.cudaStreamEndCapture(stream, byref(graph)))
assert (list(back), status.value) == ([0] * 64, 1)
ok(cuda.cudaGraphInstantiate(byref(ready), graph, c_uint64(0)))
ok(cuda.cudaGraphDestroy(graph))
for start in (0, 100):
    x[:] = range(start, start + 64)
    ok(cuda.cudaGraphLaunch(ready, stream))
    ok(cuda.cudaStreamSynchronize(stream))
    assert list(back) == [2 * each for each in range(start, start + 64)]
info = (c_int * 6)(*[9] * 6)
for times, status, result in (3, 0, 0), (2, 910, 2):
    ok(cuda.cudaStreamBeginCapture(stream, 0))
    ok(cuda.cudaMemcpyAsync(device, x, c_size_t(256), 1, stream))
    for _ in range(times - 2):
        ok(launch("scale", 1, 64, device, c_int(64)))
    ok(cuda.cudaMemcpyAsync(back, device, c_size_t(256), 2, stream))
    ok(cuda.cudaStreamEndCapture(stream, byref(graph)))
    assert cuda.cudaGraphExecUpdate(ready, graph, info) == status
    assert (info[0], list(info[2:])) == (result, [0] * 4)
    ok(cuda.cudaGraphLaunch(ready, stream))
    assert list(back) == [2 * each for each in x]
assert cuda.cudaGraphExecDestroy(ready) == 0
assert cuda.cudaGraphLaunch(ready, stream) == 1
""")
    assert code == 0, err


NODES = """
fresh = lambda: c_void_p()
def graph_of():
    graph = fresh()
    ok(cuda.cudaGraphCreate(byref(graph), 0))
    return graph
def add(kind, graph, after, *arguments):
    node, handles = fresh(), (c_void_p * (len(after) or 1))(*(each.value for each in after))
    ok(getattr(cuda, f"cudaGraphAdd{kind}")(byref(node), graph, handles, c_size_t(len(after)), *arguments))
    return node
def kernel(name, grid, block, *arguments):
    places = (c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
    packed = struct.pack("<Q7I4xQQ", host[name], grid, 1, 1, block, 1, 1, 0, ctypes.addressof(places), 0)
    return ctypes.create_string_buffer(packed), (places, arguments)
def ready_of(graph, flags=0):
    ready = fresh()
    ok(cuda.cudaGraphInstantiate(byref(ready), graph, c_uint64(flags)))
    return ready
def count(function, *arguments):
    found = c_size_t()
    ok(getattr(cuda, function)(*arguments, None, byref(found)))
    return found.value
size, n = c_size_t(256), c_int(64)
x, back = (c_float * 64)(*range(64)), (c_float * 64)()
ok(cuda.cudaMemcpyToSymbol(c_void_p(host["factor"]), byref(c_float(2)), c_size_t(4), c_size_t(0), 1))
"""


def test_graphs_of_nodes(program):
    code, _, err = program(
        NODES
        + """
device, graph, seen = malloc(256), graph_of(), []
notice = ctypes.CFUNCTYPE(None, c_void_p)(lambda argument: seen.append((argument, back[5])))
host_node = struct.pack("<QQ", ctypes.cast(notice, c_void_p).value, 77)
memset = struct.pack("<QQIIQQ", device.value + 4, 0, 0x40400000, 4, 2, 1)  # 3.0 twice
scale, kept = kernel("scale", 2, 32, device, n)
launch_node = add("KernelNode", graph, [], scale)
copy_in = add("MemcpyNode1D", graph, [], device, x, size, 1)
set_node = add("MemsetNode", graph, [copy_in], memset)
copy_out = add("MemcpyNode1D", graph, [launch_node], back, device, size, 2)
add("HostNode", graph, [copy_out], host_node)
add("EmptyNode", graph, [copy_in, set_node])
pairs = (c_void_p * 1)(set_node.value), (c_void_p * 1)(launch_node.value)
ok(cuda.cudaGraphAddDependencies(graph, *pairs, None, c_size_t(1)))  # added first, done third
assert count("cudaGraphGetNodes", graph) == 6 and count("cudaGraphGetRootNodes", graph) == 1
assert count("cudaGraphNodeGetDependencies", launch_node, None) == 1
kind = c_int()
ok(cuda.cudaGraphNodeGetType(set_node, byref(kind)))
assert kind.value == 2
clone = fresh()
ok(cuda.cudaGraphClone(byref(clone), graph))
ready = ready_of(graph)
ok(cuda.cudaGraphLaunch(ready, None))
assert list(back) == [0, 6, 6, *(2 * each for each in range(3, 64))] and seen == [(77, 10.0)], (list(back), seen)
less, kept = kernel("scale", 1, 32, device, n)
ok(cuda.cudaGraphExecKernelNodeSetParams(ready, launch_node, less))
ok(cuda.cudaGraphNodeSetEnabled(ready, set_node, 0))
ok(cuda.cudaGraphLaunch(ready, None))
assert list(back) == [each * (1 + (each < 32)) for each in range(64)]
ok(cuda.cudaGraphDestroy(graph))
ok(cuda.cudaGraphLaunch(ready_of(clone), None))
assert back[1] == 6 and back[63] == 126 and len(seen) == 3
"""
    )
    assert code == 0, err


def test_nodes_that_allocate_and_graphs_within_graphs(program):
    code, _, err = program(
        NODES
        + """
inner, outer = graph_of(), graph_of()
wanted = ctypes.create_string_buffer(struct.pack("<88xQQQQ", 0, 0, 256, 0))
allocation = add("MemAllocNode", outer, [], wanted)
(address,) = struct.unpack_from("<Q", wanted, 112)
scale, kept = kernel("scale", 2, 32, c_void_p(address), n)
add("KernelNode", inner, [], scale)
copy_in = add("MemcpyNode1D", outer, [allocation], c_void_p(address), x, size, 1)
child = add("ChildGraphNode", outer, [copy_in], inner)
copy_out = add("MemcpyNode1D", outer, [child], back, c_void_p(address), size, 2)
ready = ready_of(outer)
ok(cuda.cudaGraphLaunch(ready, None))
assert list(back) == [2 * each for each in range(64)]
assert cuda.cudaGraphLaunch(ready, None) == 1  # its memory is in use
ok(cuda.cudaFree(c_void_p(address)))
assert cuda.cudaMemcpy(back, c_void_p(address), size, 2) == 1
add("MemFreeNode", outer, [copy_out], c_void_p(address))
for _ in range(2):
    ok(cuda.cudaGraphLaunch(ready_of(outer), None))
"""
    )
    assert "has been freed" in err
    assert code == 1, err  # the copy


def test_nodes_of_every_type_are_added_by_one_function(program):
    code, _, err = program(
        NODES
        + """
device, graph, event = malloc(256), graph_of(), fresh()
ok(cuda.cudaEventCreate(byref(event)))
def add_node(kind, parameters, *after):
    node, handles = fresh(), (c_void_p * (len(after) or 1))(*(each.value for each in after))
    given = ctypes.create_string_buffer(struct.pack("<i12x", kind) + bytes(parameters), 256)
    ok(cuda.cudaGraphAddNode(byref(node), graph, handles, None, c_size_t(len(after)), given))
    return node, given
scale, kept = kernel("scale", 2, 32, device, n)
pitched = lambda address: (0, 0, 0, 0, address, 256, 256, 1)
copied = struct.pack("<16x19QI", *pitched(ctypes.addressof(x)), *pitched(device.value), 256, 1, 1, 1)
first, _ = add_node(1, copied)
second, _ = add_node(0, scale, first)
add_node(2, struct.pack("<QQIIQQ", device.value, 0, 0x1234, 2, 2, 1), second)
add_node(7, struct.pack("<Q", event.value), second)
add_node(5, b"", second)
_, given = add_node(10, struct.pack("<88xQQQQ", 0, 0, 64, 0))
add_node(11, given[16 + 112 : 16 + 120])
ok(cuda.cudaGraphLaunch(ready_of(graph), None))
ok(cuda.cudaMemcpy(back, device, size, 2))
assert bytes(back)[:4] == b"\\x34\\x12" * 2 and back[63] == 126
conditional = struct.pack("<i12x", 13) + bytes(240)
assert cuda.cudaGraphAddNode(byref(fresh()), graph, None, None, c_size_t(0), conditional) == 801
"""
    )
    assert code == 0, err


def test_memory_that_a_captured_stream_allocates_is_there_at_each_launch(program):
    code, _, err = program(
        NODES
        + """
stream, graph, device = fresh(), fresh(), fresh()
ok(cuda.cudaStreamCreate(byref(stream)))
ok(cuda.cudaStreamBeginCapture(stream, 0))
ok(cuda.cudaMallocAsync(byref(device), size, stream))
ok(cuda.cudaMemcpyAsync(device, x, size, 1, stream))
ok(launch("scale", 2, 32, device, n))
ok(cuda.cudaMemcpyAsync(back, device, size, 2, stream))
ok(cuda.cudaFreeAsync(device, stream))
ok(cuda.cudaStreamEndCapture(stream, byref(graph)))
room = (c_void_p * 5)()
ok(cuda.cudaGraphGetNodes(graph, room, byref(c_size_t(5))))
kinds = []
for node in room:
    kind = c_int()
    ok(cuda.cudaGraphNodeGetType(c_void_p(node), byref(kind)))
    kinds.append(kind.value)
assert kinds == [10, 1, 0, 1, 11], kinds
ready, used = ready_of(graph), c_uint64()
for start in (0, 100):
    x[:] = range(start, start + 64)
    ok(cuda.cudaGraphLaunch(ready, stream))
    assert list(back) == [2 * each for each in x]
    ok(cuda.cudaDeviceGetGraphMemAttribute(0, 0, byref(used)))
    assert used.value == 0
parameters = ctypes.create_string_buffer(56)
ok(cuda.cudaGraphKernelNodeGetParams(c_void_p(room[2]), parameters))
function, gx, gy, gz, bx, by, bz, shared, arguments, extra = struct.unpack("<Q7I4xQQ", parameters)
assert (function, gx, bx, shared, extra) == (host["scale"], 2, 32, 0, 0)
places = (c_void_p * 2).from_address(arguments)
assert (c_uint64.from_address(places[0]).value, c_int.from_address(places[1]).value) == (device.value, 64)
"""
    )
    assert code == 0, err


def test_copies_of_rows_and_symbols_are_captured_too(program):
    code, _, err = program("""
x, back, seen = (c_float * 64)(*range(64)), (c_float * 64)(), c_float()
factor, symbol = c_float(2), c_void_p(host["factor"])
device, stream, graph, ready = malloc(256), c_void_p(), c_void_p(), c_void_p()
ok(cuda.cudaMemcpyToSymbol(symbol, byref(c_float(1)), c_size_t(4), c_size_t(0), 1))
ok(cuda.cudaMemset(device, 0, c_size_t(256)))
ok(cuda.cudaStreamCreate(byref(stream)))
ok(cuda.cudaStreamBeginCapture(stream, 0))
ok(cuda.cudaMemcpyToSymbolAsync(symbol, byref(factor), c_size_t(4), c_size_t(0), 1, stream))
rows = (c_size_t(64), c_size_t(64), c_size_t(4))  # pitch of the other side, width, height
ok(cuda.cudaMemcpy2DAsync(device, c_size_t(64), x, *rows, 1, stream))
ok(cuda.cudaMemset2DAsync(device, c_size_t(64), 0, c_size_t(8), c_size_t(4), stream))
ok(launch("scale", 1, 64, device, c_int(64)))
ok(cuda.cudaMemcpyFromSymbolAsync(byref(seen), symbol, c_size_t(4), c_size_t(0), 2, stream))
ok(cuda.cudaStreamEndCapture(stream, byref(graph)))
ok(cuda.cudaMemcpy(back, device, c_size_t(256), 2))
assert list(back) == [0] * 64 and seen.value == 0
ok(cuda.cudaGraphInstantiate(byref(ready), graph, c_uint64(0)))
for factor.value in (2, 3):
    ok(cuda.cudaGraphLaunch(ready, stream))
    ok(cuda.cudaMemcpy(back, device, c_size_t(256), 2))
    assert list(back) == [0 if each % 16 < 2 else factor.value * each for each in range(64)]
    assert seen.value == factor.value
""")
    assert code == 0, err


def test_bugs_of_kernels_are_listed_and_the_program_goes_on(program):
    code, out, err = program("""
device = malloc(256)
ok(cuda.cudaMemset(device, 0, c_size_t(256)))
for _ in range(3):
    ok(launch("reverse", 1, 64, device, shared=256))
ok(cuda.cudaDeviceSynchronize())
print("done", flush=True)
""")
    assert (code, out) == (1, "done\n")
    assert err.count("DataRace: write-read race on shared memory") == 1
    assert "put __syncthreads() between the two accesses" in err
    assert "reverse" in err.splitlines()[-1]
    assert program("pass")[0] == 0


def test_a_kernel_that_fails_leaves_its_error_behind(program):
    code, out, _ = program("""
device = malloc(256)
ok(launch("scale", 1, 64, c_void_p(device.value + 128), c_int(64)))
for status in (cuda.cudaDeviceSynchronize(), cuda.cudaGetLastError(), cuda.cudaFree(device)):
    print(status, cuda.cudaGetErrorName(status).decode(), cuda.cudaGetErrorString(status).decode())
""")
    assert code == 1
    assert out == 3 * "700 cudaErrorIllegalAddress an illegal memory access was encountered\n"


def test_wrong_calls_return_what_cuda_returns_and_say_why(program):
    code, out, err = program("""
device = malloc(256)
host_array = (c_float * 64)()
print(launch("scale", 1, 2048, device, c_int(1)), launch("scale", 1, 32, device, c_int(1), shared=100_000))
print(cuda.cudaMemcpy(host_array, device, c_size_t(257), 2), cuda.cudaFree(c_void_p(device.value + 8)))
print(cuda.cudaGetLastError(), cuda.cudaGetLastError(), cuda.cudaSetDevice(3), cuda.cudaEventDestroy(c_void_p(5)))
print(cuda.cudaMemcpyToSymbol(c_void_p(5), host_array, c_size_t(4), c_size_t(0), 1))
for _ in range(2):
    print(cuda.cudaLaunchKernel(c_void_p(5), *[c_uint64(1)] * 4, None, c_size_t(0), None))
print(cuda.cudaFuncSetAttribute(c_void_p(host["scale"]), 8, 100_000))
print(launch("scale", 1, 32, device, c_int(0), shared=100_000))
""")
    assert code == 1, err
    assert out.split() == ["9", "1", "1", "1", "1", "0", "101", "400", "13", "98", "98", "0", "0"]
    assert [line for line in err.splitlines() if ": refused " in line] == [
        "launch of scale: refused 2 times", "cudaMemcpy: refused once", "cudaFree: refused once",
        "launch of an unknown kernel: refused 2 times",
    ]  # fmt: skip
    for said in (
        "a CTA has at most 1024 threads", "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize",
        "cudaMalloc 1 has 256 bytes, and 257 bytes from byte 0 on are wanted", "no allocation begins there",
        "device 3; there is device 0", "is no event", "is no variable that the program has registered",
        "is no kernel that the program has registered",
    ):  # fmt: skip
        assert err.count(said) == 1


def test_memory_is_a_share_of_this_machines(program):
    """A program that wants more is told so, and not killed by the system."""
    code, out, err = program("""
free, total, address = c_size_t(), c_size_t(), c_void_p()
ok(cuda.cudaMemGetInfo(byref(free), byref(total)))
print(total.value)
before = free.value
first = malloc(1 << 20)
ok(cuda.cudaMemGetInfo(byref(free), byref(total)))
print(before - free.value)
print(cuda.cudaMalloc(byref(address), c_size_t(free.value + 1)), cuda.cudaGetLastError())
print(cuda.cudaMallocManaged(byref(address), c_size_t(free.value + 1), 1), cuda.cudaGetLastError())
""")
    total, used, *codes = out.split()
    assert int(total) == device_bytes() <= 80 << 30
    assert int(used) == 1 << 20
    assert codes == ["2"] * 4, err
    assert f"of the emulated GPU's {total}, a quarter of this machine's memory" in err
    assert code == 0


@pytest.mark.parametrize(("limit", "bytes_of_gpu"), [("max", 24 << 30), ("1073741824", 1 << 28), (None, 24 << 30)])
def test_a_container_has_less(tmp_path, monkeypatch, limit, bytes_of_gpu):
    file = tmp_path / "memory.max"
    if limit is not None:
        file.write_text(limit + "\n")
    monkeypatch.setattr(memory_size, "_CONTAINER_LIMIT", file)
    monkeypatch.setattr(memory_size.os, "sysconf", {"SC_PHYS_PAGES": 24 << 20, "SC_PAGE_SIZE": 4096}.__getitem__)
    device_bytes.cache_clear()
    try:
        assert device_bytes() == bytes_of_gpu
    finally:
        device_bytes.cache_clear()


@pytest.mark.parametrize(("grid", "captured", "code"), [(1, False, 0), (0, False, 1), (0, True, 1)])
def test_a_program_that_ignores_refused_launches_does_not_pass(program, grid, captured, code):
    capture = """
stream, graph, ready = c_void_p(), c_void_p(), c_void_p()
ok(cuda.cudaStreamCreate(byref(stream)))
ok(cuda.cudaStreamBeginCapture(stream, 0))
LAUNCH
ok(cuda.cudaStreamEndCapture(stream, byref(graph)))
ok(cuda.cudaGraphInstantiate(byref(ready), graph, c_uint64(0)))
cuda.cudaGraphLaunch(ready, stream)
"""
    body = f'launch("scale", {grid}, 32, malloc(256), c_int(0))'
    assert program(capture.replace("LAUNCH", body) if captured else body)[0] == code


def test_copies_of_what_nothing_has_written_are_warned_of(program):
    code, _, err = program("""
device, back = malloc(256), (c_float * 64)()
ok(launch("scale", 1, 32, device, c_int(0)))
ok(cuda.cudaMemset(device, 0, c_size_t(100)))
for _ in range(2):
    ok(cuda.cudaMemcpy(back, device, c_size_t(256), 2))
ok(cuda.cudaMemcpy(back, device, c_size_t(100), 2))
""")
    assert code == 0, err
    assert err.count("cudaMemcpy: warning: 156 of the 256 bytes copied from cudaMalloc 1 were never written") == 1
    assert err.count("never written") == 1


def test_values_that_nothing_has_written_are_an_error_where_the_host_gets_them(program):
    """Though a kernel has only copied them. What it computes of them is an error in the kernel."""
    code, _, err = program("""
x, y, back = malloc(256), malloc(256), (c_float * 64)()
ok(cuda.cudaMemset(x, 0, c_size_t(128)))
ok(launch("gather", 1, 64, y, x))
for _ in range(2):
    ok(cuda.cudaMemcpy(back, y, c_size_t(256), 2))
""")
    said = " ".join(err.split())
    assert code == 1
    assert said.count("error [uninitialised] UninitializedRead: cudaMemcpy: 128 of the 256 bytes") == 1
    assert re.search(
        r"copied from cudaMalloc 2 were never written: thread \(32, 0, 0\) of block \(0, 0, 0\) has copied there, with "
        r"st.global.f32 \[%rd\d+\], %f1, what was read at kernel.cu:16 \(PTX line \d+\) from global memory at "
        r"cudaMalloc 1\+132, which nothing has written before: kernel.cu:16 ",
        said,
    )
    assert re.search(r"^gather +1 +\d+ +2$", err, re.MULTILINE)
    code, _, err = program("""
x, y = malloc(256), malloc(256)
ok(launch("gather", 1, 64, y, x))
ok(launch("scale", 1, 64, y, c_int(64)))
""")
    assert code == 1
    said = " ".join(err.split())
    assert re.search(r"uses register %f3, read at kernel.cu:8 .* from global memory at cudaMalloc 2\+0, where", said)
    assert re.search(r"where a kernel has put what was read at kernel.cu:16 .* at cudaMalloc 1\+4, which nothing", said)


ON_THE_WAY = {
    "nothing": ("", 1),
    "a copy": ("copy(z, y, 3)", 1),
    "a copy of rows": ("ok(cuda.cudaMemcpy2DAsync(z, *row, y, *row, *row, c_size_t(4), 3, stream))", 1),
    "zeros behind a copy": ("copy(z, y, 3); ok(cuda.cudaMemsetAsync(z, 0, c_size_t(256), stream))", 0),
    "a copy from the host behind a copy": ("copy(z, y, 3); copy(z, back, 1)", 0),
}


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("way", ON_THE_WAY)
def test_they_stay_such_values_when_they_are_copied_on(program, way, captured):
    """By copies from device to device, also in graphs, until something is written in their place."""
    done, code = ON_THE_WAY[way]
    work = f"""
ok(launch("gather", 1, 64, y, x))
{done}
copy(back, {"z" if done else "y"}, 2)
"""
    if captured:
        work = f"""
graph, ready = c_void_p(), c_void_p()
ok(cuda.cudaStreamBeginCapture(stream, 0))
{work}
ok(cuda.cudaStreamEndCapture(stream, byref(graph)))
ok(cuda.cudaGraphInstantiate(byref(ready), graph, c_uint64(0)))
ok(cuda.cudaGraphLaunch(ready, stream))
"""
    found, _, err = program(f"""
x, y, z, back, stream, row = malloc(256), malloc(256), malloc(256), (c_float * 64)(), c_void_p(), [c_size_t(64)]
def copy(target, source, kind):
    ok(cuda.cudaMemcpyAsync(target, source, c_size_t(256), kind, stream))
ok(cuda.cudaStreamCreate(byref(stream)))
{work}
ok(cuda.cudaStreamSynchronize(stream))
""")
    assert found == code, err
    assert " ".join(err.split()).count("were never written: thread (0, 0, 0) of block (0, 0, 0) has copied") == code


@pytest.mark.parametrize("second", ["", "ok(launch('pairs', 1, 64, x, y))", "ok(cuda.cudaMemcpy(y, x, size, 3))"])
def test_padding_of_structs_is_no_error_where_the_host_gets_it(program, second):
    """Their members are written one by one, the structs copied as a whole, by kernels and otherwise, and then read."""
    code, out, err = program(f"""
x, y, back, size = malloc(1024), malloc(1024), (c_uint64 * 128)(), c_size_t(1024)
ok(launch("pairs", 1, 64, c_void_p(), x))
ok(launch("pairs", 1, 64, y, x))
{second}
ok(cuda.cudaMemcpy(back, y, size, 2))
print([struct.unpack_from("<ixxxxd", back, 16 * i) for i in range(3)])
""")
    assert code == 0, err
    assert out == "[(0, 0.0), (1, 2.0), (2, 4.0)]\n"
    said = "256 of the 1024 bytes copied from cudaMalloc 2 were never written (4 to 7 of every 16, which may be padding"
    assert err.count(said) == 1
    assert "error" not in err


def test_memory_of_three_dimensions_and_between_devices(program):
    code, out, err = program("""
class Pitched(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("pitch", c_size_t), ("width", c_size_t), ("height", c_size_t)]
class Extent(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]
class Copy(ctypes.Structure):
    _fields_ = [
        ("from_array", c_void_p), ("from_position", Extent), ("source", Pitched),
        ("to_array", c_void_p), ("to_position", Extent), ("target", Pitched), ("extent", Extent), ("kind", c_int),
    ]
device = Pitched()
ok(cuda.cudaMalloc3D(byref(device), Extent(40, 3, 2)))
print(device.pitch, device.width, device.height)
ok(cuda.cudaMemset3D(device, 7, Extent(40, 3, 2)))
numbers = (ctypes.c_ubyte * 240)(*range(240))
packed = Pitched(ctypes.addressof(numbers), 40, 40, 3)
ok(cuda.cudaMemcpy3D(byref(Copy(None, Extent(0, 1, 1), packed, None, Extent(8, 2, 0), device, Extent(5, 1, 1), 1))))
back = (ctypes.c_ubyte * 240)()
unpacked = Pitched(ctypes.addressof(back), 40, 40, 3)
whole = Copy(None, Extent(0, 0, 0), device, None, Extent(0, 0, 0), unpacked, Extent(40, 3, 2), 2)
ok(cuda.cudaMemcpy3DAsync(byref(whole), None))
assert list(back) == [7] * 88 + [160, 161, 162, 163, 164] + [7] * 147
whole.to_array = 5
print(cuda.cudaMemcpy3D(byref(whole)))
ok(cuda.cudaMemcpyPeer(c_void_p(device.address), 0, c_void_p(device.address + 1024), 0, c_size_t(16)))
ok(cuda.cudaMemcpy(back, c_void_p(device.address), c_size_t(16), 2))
assert list(back)[:16] == [7] * 8 + [160, 161, 162, 163, 164] + [7] * 3
print(cuda.cudaMemcpyPeer(c_void_p(device.address), 1, c_void_p(device.address), 0, c_size_t(16)))
room = c_size_t()
ok(cuda.cudaOccupancyAvailableDynamicSMemPerBlock(byref(room), c_void_p(ctypes.addressof(hosts)), 2, 128))
print(room.value)
""")
    assert code == 0, err
    assert out.split() == ["512", "40", "3", "1", "101", str(233472 // 2 - 1024)]
    assert "is no array (cudaArray_t)" in err


def test_devices_occupancy_and_unknown_functions(program):
    code, out, err = program(
        """
count, value, properties = c_int(), c_int(), ctypes.create_string_buffer(4096)
ok(cuda.cudaGetDeviceCount(byref(count)))
ok(cuda.cudaGetDeviceProperties(properties, 0))
ok(cuda.cudaDeviceGetAttribute(byref(value), 97, 0))
print(count.value, properties.value.decode(), *struct.unpack_from("<2i", properties, 360), value.value)
ok(cuda.cudaOccupancyMaxActiveBlocksPerMultiprocessor(byref(value), c_void_p(host["scale"]), 256, c_size_t(0)))
print(value.value)
ok(cuda.cudaDeviceGetPCIBusId(properties, 13, 0))
ok(cuda.cudaDeviceGetByPCIBusId(byref(value), properties))
print(value.value, properties.value.decode(), cuda.cudaDeviceGetPCIBusId(properties, 12, 0))
""",
        "--arch", "sm_90a",
    )  # fmt: skip
    assert code == 0, err
    assert out == f"1 NVIDIA H200 (emulated) 9 0 {227 * 1024}\n8\n0 0000:00:00.0 1\n"


def test_memory_pools_give_memory_and_keep_what_they_are_told(program):
    code, out, err = program("""
first, pool, found, value = c_void_p(), c_void_p(), c_void_p(), c_uint64(1 << 40)
ok(cuda.cudaDeviceGetDefaultMemPool(byref(first), 0))
ok(cuda.cudaMemPoolSetAttribute(first, 4, byref(value)))
value.value = 0
ok(cuda.cudaMemPoolGetAttribute(first, 4, byref(value)))
print(value.value == 1 << 40)
ok(cuda.cudaMemPoolCreate(byref(pool), ctypes.create_string_buffer(88)))
ok(cuda.cudaDeviceSetMemPool(0, pool))
ok(cuda.cudaDeviceGetMemPool(byref(found), 0))
print(found.value == pool.value != first.value)
ok(cuda.cudaMallocFromPoolAsync(byref(found), c_size_t(128), pool, None))
ok(cuda.cudaMemsetAsync(found, 0, c_size_t(128), None))
ok(launch("scale", 1, 32, found, c_int(32)))
ok(cuda.cudaFreeAsync(found, None))
ok(cuda.cudaMemPoolTrimTo(pool, c_size_t(0)))
ok(cuda.cudaMemPoolDestroy(pool))
print(cuda.cudaMemPoolDestroy(first), cuda.cudaMemPoolTrimTo(pool, c_size_t(0)))
print(cuda.cudaMemPoolGetAttribute(first, 7, byref(value)), cuda.cudaMemPoolGetAttribute(first, 99, byref(value)))
""")
    assert code == 0, err
    assert out == "True\nTrue\n1 1\n801 1\n"
    assert "the default pool of a device cannot be destroyed" in err
    assert "how much memory a pool has is not emulated" in err


def test_every_known_property_has_the_place_that_cudas_header_gives_it(program):
    code, out, err = program(
        """
from cuda.bindings.runtime import cudaDeviceProp
properties = cudaDeviceProp()
ok(cuda.cudaGetDeviceProperties(c_void_p(properties.getPtr()), 0))
print(properties.multiProcessorCount, properties.concurrentKernels, properties.sharedMemPerMultiprocessor >> 10)
print(properties.managedMemory, properties.cooperativeLaunch, properties.clusterLaunch, properties.hostNumaId)
""",
        "--arch", "sm_90a",
    )  # fmt: skip
    assert code == 0, err
    assert out == "132 1 228\n1 1 1 0\n"


def test_properties_of_cuda_12_are_where_its_header_has_them():
    offsets = {"surfaceAlignment": 568, "concurrentKernels": 576, "sharedMemPerMultiprocessor": 640,
               "cooperativeLaunch": 688, "sharedMemPerBlockOptin": 696, "clusterLaunch": 772}  # fmt: skip
    assert {name: getattr(Properties12, name).offset for name in offsets} == offsets


DRIVER = """
import numpy as np
from cuda.bindings import driver, nvrtc
def ok(answer):
    status, *rest = answer
    assert int(status) == 0, status
    return rest[0] if len(rest) == 1 else rest
source = b'extern "C" __global__ void scale(float* x, float by, int n) { if (threadIdx.x < n) x[threadIdx.x] *= by; }'
made = ok(nvrtc.nvrtcCreateProgram(source, b"scale.cu", 0, [], []))
ok(nvrtc.nvrtcCompileProgram(made, 1, [b"-arch=compute_80"]))
ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(made))
ok(nvrtc.nvrtcGetPTX(made, ptx))
ok(driver.cuInit(0))
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))))
kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(ptx)), b"scale"))
x = np.arange(100, dtype=np.float32)
device = ok(driver.cuMemAlloc(x.nbytes))
ok(driver.cuMemcpyHtoD(device, x.ctypes.data, x.nbytes))
values = [np.array([int(device)], np.uint64), np.array([3], np.float32), np.array([100], np.int32)]
places = np.array([each.ctypes.data for each in values], np.uint64)
ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 128, 1, 1, 0, 0, places.ctypes.data, 0))
ok(driver.cuMemcpyDtoH(x.ctypes.data, device, x.nbytes))
print(x[:4].tolist(), driver.cuModuleLoadData(b"\\x7fELF"), driver.cuGetErrorName(driver.CUresult(700))[1].decode())
"""


def test_a_python_program_of_the_driver(tmp_path, capfd):
    (tmp_path / "driver.py").write_text(DRIVER)
    assert run(["run", "--arch", "sm_80", sys.executable, str(tmp_path / "driver.py")]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("[0.0, 3.0, 6.0, 9.0]")
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in out
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in out
    assert "the module is machine code; compile it to PTX" in err


COMPILED = """
#include <cstdio>
#include <cuda_runtime.h>
__device__ int sum;
template <typename T> __global__ void add(const T* x, int n) {
  if (threadIdx.x < n) atomicAdd(&sum, (int)x[threadIdx.x]);
}
int main(int argc, char** argv) {
  int x[64], *device, found;
  for (int i = 0; i < 64; i++) x[i] = i;
  cudaMalloc(&device, sizeof x);
  cudaMemcpy(device, x, sizeof x, cudaMemcpyHostToDevice);
  add<int><<<1, 64>>>(device, argc > 1 ? 64 : 10);
  cudaMemcpyFromSymbol(&found, sum, sizeof found);
  cudaGraph_t graph{};
  printf("%d %s\\n", found, cudaGetErrorName(cudaGraphDebugDotPrint(graph, "", 0)));
  return found != (argc > 1 ? 2016 : 45);
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_a_program_that_nvcc_compiled(tmp_path, capfd):
    source, made = tmp_path / "sum.cu", tmp_path / "sum"
    source.write_text(COMPILED)
    options = ["-cudart", "shared", "-lineinfo", "-gencode", "arch=compute_90a,code=compute_90a"]
    subprocess.run(["nvcc", *options, str(source), "-o", str(made)], check=True, capture_output=True)
    found = read_program(made)
    assert found.arch == "sm_90a"
    assert "cudaMalloc" in found.functions
    assert [run(["run", str(made)]), run(["run", str(made), "all"])] == [0, 0]
    out, err = capfd.readouterr()
    assert out == "45 cudaErrorNotSupported\n2016 cudaErrorNotSupported\n"
    assert "cudaGraphDebugDotPrint: this function is not emulated" in err


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_a_program_that_is_compiled_first(tmp_path, capfd):
    source = tmp_path / "sum.cu"
    source.write_text(COMPILED.replace("2016", "WANTED"))
    assert run(["run", "--nvcc", "-D WANTED=2016 -O1", "--arch", "sm_80", str(source), "all"]) == 0
    out, err = capfd.readouterr()
    assert out == "2016 cudaErrorNotSupported\n"
    assert "sum.cu, emulated as sm_80" in err
    assert run(["run", str(source)]) == 1
    assert "WANTED" in capfd.readouterr().err


def test_a_program_that_cannot_be_compiled_says_how(tmp_path, capfd, monkeypatch):
    source = tmp_path / "sum.cu"
    source.write_text(COMPILED)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["run", str(source)]) == 4
    assert "there is no nvcc to compile it; where there is one: nvcc -cudart shared" in capfd.readouterr().err


TEXTURES = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void plane(float* y, cudaTextureObject_t t, float by) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = tex2D<float>(t, threadIdx.x * by + 0.5f, blockIdx.x + 0.5f);
}
__global__ void row(int* y, cudaTextureObject_t t) {
  int2 found = tex1Dfetch<int2>(t, threadIdx.x);
  y[threadIdx.x] = 100 * found.x + found.y;
}
__global__ void layers(float* y, cudaTextureObject_t t) {
  y[threadIdx.x] = tex2DLayered<float>(t, 1.5f, 1.5f, threadIdx.x);
}
__global__ void add(cudaSurfaceObject_t s) {
  float found = surf2Dread<float>(s, 4 * threadIdx.x, blockIdx.x);
  surf2Dwrite(found + 1, s, 4 * threadIdx.x, blockIdx.x);
}
#define OK(call) if (cudaError_t e = call) { printf("%s: %s\\n", #call, cudaGetErrorName(e)); return 1; }
#define IS(wanted, found) if ((found) != (wanted)) { printf("%s is %g\\n", #found, double(found)); return 1; }
int main() {
  float x[2][4][8], y[32], *out;
  for (int i = 0; i < 64; i++) (&x[0][0][0])[i] = i;
  OK(cudaMalloc(&out, sizeof x));
  cudaChannelFormatDesc real = cudaCreateChannelDesc<float>();
  cudaArray_t array, volume;
  OK(cudaMallocArray(&array, &real, 8, 4, cudaArraySurfaceLoadStore));
  OK(cudaMemcpy2DToArray(array, 0, 0, x, 32, 32, 4, cudaMemcpyHostToDevice));
  if (cudaMemcpy2DToArray(array, 4, 0, x, 32, 32, 4, cudaMemcpyHostToDevice) != cudaErrorInvalidValue) return 2;
  cudaResourceDesc of = {};
  of.resType = cudaResourceTypeArray;
  of.res.array.array = array;
  cudaTextureDesc how = {};
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
  how.filterMode = cudaFilterModeLinear;
  cudaTextureObject_t texture, whole, stacked;
  cudaSurfaceObject_t surface;
  OK(cudaCreateTextureObject(&texture, &of, &how, nullptr));
  OK(cudaCreateSurfaceObject(&surface, &of));
  add<<<4, 8>>>(surface);
  plane<<<4, 8>>>(out, texture, 0.5f);
  OK(cudaMemcpy(y, out, sizeof y, cudaMemcpyDeviceToHost));
  IS(1, y[0]); IS(4.5f, y[7]); IS(28.5f, y[31]);
  OK(cudaMemcpy2DFromArray(y, 32, array, 0, 0, 32, 4, cudaMemcpyDeviceToHost));
  IS(32, y[31]);
  int2 pairs[3] = {{1, 2}, {3, 4}, {5, 6}}, *memory;
  OK(cudaMalloc(&memory, sizeof pairs));
  OK(cudaMemcpy(memory, pairs, sizeof pairs, cudaMemcpyHostToDevice));
  cudaResourceDesc line = {};
  line.resType = cudaResourceTypeLinear;
  line.res.linear.devPtr = memory;
  line.res.linear.desc = cudaCreateChannelDesc<int2>();
  line.res.linear.sizeInBytes = sizeof pairs;
  cudaTextureDesc plain = {};
  OK(cudaCreateTextureObject(&whole, &line, &plain, nullptr));
  row<<<1, 4>>>((int*)out, whole);
  int numbers[4];
  OK(cudaMemcpy(numbers, out, sizeof numbers, cudaMemcpyDeviceToHost));
  IS(102, numbers[0]); IS(506, numbers[2]); IS(0, numbers[3]);
  OK(cudaMalloc3DArray(&volume, &real, make_cudaExtent(8, 4, 2), cudaArrayLayered));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(x, 32, 8, 4);
  copy.dstArray = volume;
  copy.extent = make_cudaExtent(8, 4, 2);
  copy.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&copy));
  of.res.array.array = volume;
  OK(cudaCreateTextureObject(&stacked, &of, &how, nullptr));
  layers<<<1, 2>>>(out, stacked);
  OK(cudaMemcpy(y, out, 8, cudaMemcpyDeviceToHost));
  IS(9, y[0]); IS(41, y[1]);
  OK(cudaDestroySurfaceObject(surface));
  OK(cudaDestroyTextureObject(texture));
  OK(cudaFreeArray(array));
  cudaMipmappedArray_t levels;
  IS(cudaErrorNotSupported, cudaMallocMipmappedArray(&levels, &real, make_cudaExtent(8, 8, 0), 2));
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_textures_and_surfaces(tmp_path, capfd):
    source, made = tmp_path / "textures.cu", tmp_path / "textures"
    source.write_text(TEXTURES)
    options = ["-cudart", "shared", "-lineinfo", "-gencode", "arch=compute_90a,code=compute_90a"]
    subprocess.run(["nvcc", *options, str(source), "-o", str(made)], check=True, capture_output=True)
    assert run(["run", str(made)]) == 0, capfd.readouterr()


def test_a_misspelt_option_runs_nothing(capfd):
    """Else each launch would be refused, and a program that looks at no error ends well, with nothing checked."""
    for option, said in (("--schedule", "it takes latest, earliest or random:SEED"), ("--arch", "it takes sm_75")):
        assert run(["run", option, "lastest", sys.executable, "-c", "print('ran')"]) == 2
        told = capfd.readouterr()
        assert told.out == ""
        assert f"got 'lastest'; {said}" in " ".join(told.err.split())


def test_what_is_no_program(tmp_path, capfd):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert run(["run", str(script)]) == 2
    script.chmod(0o755)
    assert run(["run", str(script)]) == 2
    said = capfd.readouterr().err
    assert "no executable file, such as ./program, nor a .cu file" in said
    assert "is a script; give an executable that nvcc linked, such as ./program, or the Python" in said
    assert sys.executable in said
    script.write_bytes(Path(sys.executable).read_bytes()[:4000])
    assert run(["run", str(script)]) == 2
    assert "is cut short" in capfd.readouterr().err
    script.write_text("text")
    assert run(["run", str(script)]) == 2
    assert "is no 64-bit ELF file" in capfd.readouterr().err


def test_elf_files():
    elf = ElfFile(Path("/proc/self/exe").read_bytes())
    assert any(name.startswith(("libc.so", "libpython")) for name in elf.needed)
    assert elf.section(".text")
    assert elf.section(".nv_fatbin") == b""
    assert any(version and version.startswith("GLIBC") for version in elf.undefined.values())
