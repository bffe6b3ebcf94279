"""`warptile run`: CUDA graphs, captured or made of nodes."""

import platform

import pytest

pytestmark = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="whole programs run on x86-64 Linux"
)


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
