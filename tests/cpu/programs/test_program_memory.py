"""`warptile run`: memory of programs, and what nothing has written of it."""

import platform
import re

import pytest

from warptile.programs import memory_size
from warptile.programs.memory_size import device_bytes

pytestmark = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="whole programs run on x86-64 Linux"
)


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
