"""Users' kernels, called on NumPy arrays and run by the emulator."""

import ctypes
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from warptile.errors import ArgumentError, DataRace, IllegalAddress, MisalignedAccess
from warptile.user_kernels.pointed_types import elements_taken

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace mine {
template <typename T, int STEP> __global__ void scale(T* x, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[STEP * i] = x[STEP * i] * by;
}
}
struct Line { const float* x; float* y; float slope; bool doubled; };
__global__ void line(const __grid_constant__ Line p, int n) {
  int i = threadIdx.x;
  if (i < n) p.y[i] = p.slope * p.x[i] * (p.doubled ? 2 : 1);
}
__global__ void wide(float4* x) { x[threadIdx.x] = make_float4(1, 2, 3, 4); }
__global__ void shift(const float* x, float* y, long long by) { y[threadIdx.x] = x[threadIdx.x + by]; }
extern "C" __global__ void plain(float* x, unsigned bits, float by) { x[threadIdx.x] = by + bits; }
__global__ void complex(float* x, float2 z, bool b, char c) { x[0] = z.x + z.y + b + c; }
"""
FLOATS = np.arange(16, dtype=np.float32)


def kernel(name, **options):
    return wt.kernel(SOURCE, name, backend="emulator", arch="sm_90a", **options)


@pytest.mark.parametrize(
    ("instance", "dtype", "by"),
    [
        ("mine::scale<float, 1>", np.float32, 2.5),
        ("mine::scale<__half, 1>", np.float16, 2.5),
        ("mine::scale<__nv_bfloat16, 1>", ml_dtypes.bfloat16, ml_dtypes.bfloat16(2.5)),
        ("mine::scale<unsigned char, 1>", np.uint8, 3),
        ("mine::scale<double, 1>", np.float64, np.float64(0.1)),
    ],
)
def test_a_template_is_called_on_arrays_that_it_writes(instance, dtype, by):
    x = np.arange(100).astype(dtype)
    report = kernel(instance)[(2,), 64](x, by, 90)
    expected = np.arange(100).astype(dtype)
    expected[:90] = expected[:90] * dtype(by)
    np.testing.assert_array_equal(x, expected)
    assert report.ok
    assert report.counters["global_store_bytes"] == 90 * np.dtype(dtype).itemsize


def test_files_of_cuda_and_ptx(tmp_path):
    (tmp_path / "mine.cuh").write_text("__device__ float twice(float x) { return FACTOR * x; }")
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "double.cu"
    file.write_text(
        '#include "mine.cuh"\n__global__ void twice_of(float* x) { x[threadIdx.x] = twice(x[threadIdx.x]); }'
    )
    x = FLOATS.copy()
    made = wt.kernel(file, include_folders=[tmp_path], options=["-DFACTOR=2"], backend="emulator")
    report = made[1, 16](x)
    assert x.tolist() == (2 * FLOATS).tolist()
    assert {line.text for line in report.lines if line.file == "double.cu"} >= {file.read_text().splitlines()[1]}
    ptx = tmp_path / "plain.ptx"
    ptx.write_text(kernel("plain")._for("sm_90a", machine_code=False).file.ptx)
    for source in (ptx, str(ptx), ptx.read_text()):
        wt.kernel(source, "plain", backend="emulator")[1, 16](x, 7, 0.5)
        assert x.tolist() == [7.5] * 16
        x[:] = 0


def test_views_lie_in_the_emulated_memory_as_in_their_own():
    base = np.arange(64, dtype=np.float32)
    assert kernel("mine::scale<float, 2>")[1, 32](base[1::2][:8], 10.0, 8).ok
    assert base[:18:2].tolist() == list(range(0, 18, 2))
    assert base[1:18:2].tolist() == [*range(10, 160, 20), 17]
    assert kernel("wide")[1, 2](base[4:12]).ok
    report = kernel("wide")[1, 2](base[5:13])
    with pytest.raises(MisalignedAccess, match="not a multiple of 16 bytes"):
        report.raise_if_found()
    assert not report.finished


def test_arrays_that_share_memory_share_it_for_the_kernel():
    x = np.arange(40, dtype=np.float32)
    kernel("shift")[1, 16](x[:16], x[20:36], 0)
    assert x[20:36].tolist() == list(range(16))
    report = kernel("shift")[1, 16](x, x[1:], 0)
    with pytest.raises(DataRace, match="race on arg0"):
        report.raise_if_found()


@pytest.mark.parametrize("by", [-2000, -80, -1, 1])
def test_bytes_around_a_view_belong_to_nobody(by):
    base = np.arange(40, dtype=np.float32)
    report = kernel("shift")[1, 16](base[8:24], np.zeros(16, np.float32), by)
    where = f"at arg0{4 * by}, before arg0 begins" if by < 0 else r"at arg0\+64, but arg0 has 64 bytes"
    with pytest.raises(IllegalAddress, match=where):
        report.raise_if_found()


def test_a_null_pointer_is_told():
    report = kernel("plain")[1, 16](None, 1, 1.0)
    assert "fix: give the kernel an array: the pointer is null" in str(report)


def test_a_read_only_array_is_not_written():
    x = FLOATS.copy()
    x.flags.writeable = False
    report = kernel("plain")[1, 16](x, 1, 1.0)
    with pytest.raises(IllegalAddress, match="arg0"):
        report.raise_if_found()
    assert "fix: give the kernel memory that it may write" in str(report)
    assert x.tolist() == FLOATS.tolist()


def line_structs(x, y):
    class Line(ctypes.Structure):
        _fields_ = (
            ("x", ctypes.c_void_p),
            ("y", ctypes.c_void_p),
            ("slope", ctypes.c_float),
            ("doubled", ctypes.c_bool),
        )

    record = np.zeros((), np.dtype(Line))
    record["slope"], record["doubled"] = 3, True
    return [
        wt.struct(x=x, y=y, slope=3.0, doubled=True),
        wt.struct(Line(0, 0, 3.0, True), x=x, y=y),
        wt.struct(record, x=x, y=y),
        wt.struct(record[()], y=y, x=x),
    ]


def test_structs_hold_arrays_of_pointers_and_numbers():
    source = """
    struct Lists { float* data[2][2]; char used[3]; long long sizes[2]; };
    __global__ void k(Lists lists) {
      const int t = threadIdx.x;
      for (int i = 0; i < 2; ++i)
        if (t < lists.sizes[i]) lists.data[1][i][t] += lists.data[0][i][t] * lists.used[i];
    }
    """
    x, y, z = FLOATS.copy(), np.zeros(16, np.float32), np.ones(16, np.float32)
    used = [np.int8(each) for each in (3, 2, 0)]
    lists = wt.struct(data=[[x, z], (y, y[8:])], used=used, sizes=[np.int64(5), np.int64(7)])
    wt.kernel(source, backend="emulator", arch="sm_90a")[1, 16](lists)
    assert y.tolist() == [*(3 * FLOATS[:5]), 0, 0, 0, *[2] * 7, 0]


def test_a_class_that_the_arguments_of_a_template_break_is_said_to_be_wrong():
    source = """
    template <int Stages> struct Traits { static_assert(Stages > 1, "too few"); static constexpr int value = Stages; };
    template <typename T> __global__ void k(int* y) { y[0] = T::value; }
    """
    y = np.zeros(1, np.int32)
    wt.kernel(source, "k<Traits<2>>", backend="emulator", arch="sm_90a")[1, 1](y)
    assert y[0] == 2
    said = r'identifier "Traits" is undefined, as it was left out for source.cu\(2\): static assertion failed.*too few'
    with pytest.raises(ArgumentError, match=said):
        wt.kernel(source, "k<Traits<1>>", backend="emulator", arch="sm_90a")[1, 1](y)


@pytest.mark.parametrize("form", range(4))
def test_structs_hold_pointers(form):
    x, y = FLOATS.copy(), np.zeros(16, np.float32)
    report = kernel("line")[1, 16](line_structs(x, y)[form], 10)
    assert y.tolist() == [*(6 * FLOATS[:10]), *[0] * 6]
    assert report.ok


def test_small_structs_and_scalars_without_pointers():
    x = np.zeros(1, np.float32)
    kernel("complex")[1, 1](x, np.complex64(1 + 2j), True, -4)
    assert x[0] == 0
    kernel("complex")[1, 1](x, np.array((5, 6), "f4, f4")[()], np.bool_(False), np.int8(1))
    assert x[0] == 12


TMA = r"""
struct alignas(64) CUtensorMap { char raw[128]; };
__global__ void box(const __grid_constant__ CUtensorMap map, unsigned short* d) {
  __shared__ alignas(1024) unsigned short tile[8 * 64];
  __shared__ alignas(8) unsigned long long bar;
  unsigned at = __cvta_generic_to_shared(&bar), to = __cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
    asm volatile("fence.proxy.async.shared::cta;");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" :: "r"(at));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0],"
                 " [%1, {%2, %3}], [%4];" :: "r"(to), "l"(&map), "r"(0), "r"(2), "r"(at) : "memory");
  }
  __syncthreads();
  asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra again;}" :: "r"(at));
  for (int i = threadIdx.x; i < 512; i += blockDim.x) d[i] = tile[i];
}
"""


@pytest.mark.parametrize("swizzle", ["none", "128B"])
def test_tensor_maps(swizzle):
    x = np.arange(20 * 72, dtype=np.uint16).reshape(20, 72)
    d = np.zeros((8, 64), np.uint16)
    box = wt.kernel(TMA, "box", backend="emulator", arch="sm_90a")
    report = box[1, 32](wt.tensor_map(x[:, 8:], box=(8, 64), swizzle=swizzle), d)
    report.raise_if_found()
    expected = x[2:10, 8:]
    if swizzle == "128B":
        chunks = expected.reshape(8, 8, 8)
        expected = np.stack([chunks[row][np.arange(8) ^ row] for row in range(8)]).reshape(8, 64)
    assert d.tolist() == expected.tolist()
    # Rows of 128 bytes begin at 16 + 144 * row: every second one in the middle of a sector of 32 bytes.
    assert report.counters["tma_load_sectors"] == 4 * 4 + 4 * 5


def test_a_pointer_takes_a_tensor_map_too():
    source = TMA.replace("const __grid_constant__ CUtensorMap map", "const CUtensorMap* map, int times")
    source = source.replace("&map", "map")
    assert source.count("CUtensorMap* map") == 1
    x, d = np.arange(20 * 72, dtype=np.uint16).reshape(20, 72), np.zeros((8, 64), np.uint16)
    box = wt.kernel(source, "box", backend="emulator", arch="sm_90a")
    box[1, 32](wt.tensor_map(x[:, 8:], box=(8, 64)), 1, d).raise_if_found()
    assert d.tolist() == x[2:10, 8:].tolist()
    with pytest.raises(wt.ArgumentTypeError, match=r"CUtensorMap.* takes wt\.tensor_map\(x, .*\), an array"):
        box[1, 32](5, 1, d)
    other = wt.kernel("__global__ void k(float* x) {}", backend="emulator", arch="sm_90a")
    with pytest.raises(wt.ArgumentTypeError, match="is a tensor map; the parameter is float"):
        other[1, 32](wt.tensor_map(x, box=(8, 8)))


REFUSED = [
    ("shift", (FLOATS, FLOATS), "got 2 arguments; it takes 3 .float const., float., long long."),
    ("shift", (FLOATS, 5, 0), "argument 1 is int 5, which is no array; the parameter is float."),
    ("shift", (FLOATS, FLOATS, 2.5), "argument 2 is float 2.5; the parameter is long long"),
    ("shift", (FLOATS, FLOATS, np.int32(2)), "argument 2 is int32 np.int32.2., which is not numpy.int64"),
    ("shift", (FLOATS, FLOATS, 2**63), "argument 2 is 9223372036854775808; .* does not hold it"),
    ("shift", (FLOATS, FLOATS, None), "argument 2 is None; the parameter is long long .* whole number, such as 5$"),
    ("shift", ("x", FLOATS, 1), "argument 0 is str; the parameter is float const.* an array"),
    ("shift", (wt.tensor_map(FLOATS, box=(8,)), FLOATS, 1), "argument 0 is a tensor map"),
    ("shift", (FLOATS.astype("f8"), FLOATS, 0), "argument 0 is an array of float64; .* is float const. and takes"),
    ("shift", (FLOATS, FLOATS.astype("i4"), 0), "give arg1.astype.'float32'. .*, or arg1.view.'uint8'. for the bytes"),
    ("line", (FLOATS, 1), "argument 0 is an array of float32; the parameter is Line .24 bytes."),
    ("line", (np.float32(1), 1), "argument 0 is float32"),
    ("line", (wt.struct(x=FLOATS), 1), "argument 0 is a struct of 8 bytes; the parameter is Line .24 bytes."),
    ("plain", (FLOATS, 1, np.float64(1)), "argument 2 is float64 .*; the parameter is .f32"),
    ("plain", (FLOATS, np.float32(1), 1.0), "argument 1 is float32 .*; the parameter is .u32"),
    ("mine::scale<__half, 1>", (FLOATS.astype("f2"), np.float32(1), 1), "which is not numpy.float16"),
    ("mine::scale<float, 1>", (FLOATS, 1e39, 1), "argument 1 is 1e.39; the parameter is float .* does not hold it"),
    ("mine::scale<__half, 1>", (FLOATS.astype("f2"), -70000, 1), "argument 1 is -70000; .* does not hold it"),
    ("mine::scale<float, 1>", (FLOATS.astype(">f4"), 1.0, 1), "byte order '>f4'.* arg0.astype.'float32'."),
]


POINTERS = [
    ("float", "float32 complex64 uint8 int8", "float64 int32 float16 bool"),
    ("const double", "float64 complex128 uint8", "float32 int64"),
    ("int", "int32 uint32 uint8", "int64 float32 int16"),
    ("unsigned long long", "uint64 int64 uint8", "float64 int32"),
    ("long", "int64 uint64", "int32"),
    ("unsigned short", "uint16 int16 float16 bfloat16", "int32 float32"),
    ("__half", "float16 uint16 int8", "float32 bfloat16"),
    ("const __nv_bfloat16", "bfloat16 uint16 uint8", "float16 float32"),
    ("__nv_fp8_e4m3", "float8_e4m3fn uint8", "float8_e5m2 float32"),
    ("unsigned char", "uint8 int8 bool float8_e5m2", "float32 int32"),
    ("bool", "bool uint8", "int32"),
    ("float4", "float32 complex64 uint8", "float64 int32"),
    ("__half2", "float16 uint16", "float32"),
    ("double2", "float64 complex128", "float32"),
    ("int4", "float16 float32 float64 int32", ""),
    ("char", "float32 float64 bool", ""),
    ("void", "float32 int64", ""),
    ("Line", "float32 float64", ""),
    ("float*", "uint64 int64", "float32"),
]


@pytest.mark.parametrize(("pointed", "taken", "refused"), POINTERS, ids=[name for name, *_ in POINTERS])
def test_a_pointer_takes_arrays_of_what_it_points_to(pointed, taken, refused):
    headers = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <cuda_fp8.h>\nstruct Line { float x; };\n"
    made = wt.kernel(f"{headers}__global__ void k({pointed}* x) {{}}", "k", backend="emulator", arch="sm_90a")
    for element in taken.split():
        made[1, 1](np.zeros(16, element))
    for element in refused.split():
        with pytest.raises(wt.DTypeError, match=f"^k: argument 0 is an array of {element}; .*, or bytes: "):
            made[1, 1](np.zeros(16, element))
        made[1, 1](np.zeros(16, element).view("uint8"))
        made[1, 1](np.zeros(0, element))
    made[1, 1](np.zeros(16, [("a", "f4")]))


def test_elements_are_looked_at_behind_pointers_to_rows_and_references_alone():
    assert elements_taken("float const (*) [16]") == elements_taken("float (&) [4][4]") == ("float32", "complex64")
    assert elements_taken("float const volatile* const*") == ("uint64", "int64")
    for other in ("void (*)(float)", "T const*", "std::complex<float>*", "float", "mine::Row<float*>*"):
        assert elements_taken(other) is None
    c_name = wt.kernel('extern "C" __global__ void k(float* x) {}', backend="emulator", arch="sm_90a")
    c_name[1, 1](np.zeros(16))


@pytest.mark.parametrize(("name", "values", "said"), REFUSED, ids=[said for *_, said in REFUSED])
def test_arguments_that_a_parameter_does_not_take(name, values, said):
    with pytest.raises((wt.ArgumentError, wt.ArgumentTypeError, wt.DTypeError), match=said):
        kernel(name)[1, 16](*values)


@pytest.mark.parametrize("by", [np.inf, -np.inf, np.nan, 3.4e38])
def test_a_float_takes_every_value_that_it_has(by):
    x = np.ones(1, np.float32)
    kernel("mine::scale<float, 1>")[1, 1](x, float(by), 1)
    np.testing.assert_array_equal(x, np.float32(by))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: wt.kernel("missing.cu"), "there is no file 'missing.cu'"),
        (lambda: wt.kernel(5), "got int; it takes a file or text"),
        (lambda: kernel("plain", checks=["rces"]), "got .rces.; there are"),
        (lambda: wt.kernel("a" * 300 + ".cu"), "there is no file 'a"),
        (lambda: kernel(3), "entry: got 3; it takes the name of a kernel"),
        (lambda: kernel("plan")[1, 1](FLOATS), "entry: got 'plan'; the file has plain"),
        (lambda: kernel("mine::scale<foo, 1>")[1, 1](FLOATS), 'got .*foo, 1>. .identifier "foo" is undefined.; the'),
        (lambda: wt.kernel(SOURCE, "plain", arch=90, backend="emulator")[1, 1](FLOATS), "arch: got 90; NVRTC"),
        (lambda: kernel("plain", options="-O3"), "options: got '-O3'; it takes a sequence of NVRTC's options"),
        (lambda: kernel("plain", options=[3]), "options: got .3.; it takes a sequence"),
        (lambda: kernel("plain", include_folders="tests"), "include_folders: got 'tests'; it takes a sequence"),
        (lambda: kernel("plain", include_folders=["nowhere"]), "there is no folder 'nowhere'"),
        (lambda: kernel("plain", schedule="random:x"), "schedule: got 'random:x'; it is latest, earliest or"),
        (lambda: kernel("plain", schedule=3), "schedule: got 3; it is latest, earliest or"),
        (lambda: kernel("plain", cooperative="x"), "cooperative: got 'x'; it takes True or False"),
        (lambda: wt.emulated(schedule="late").__enter__(), "schedule: got 'late'; it is latest, earliest or"),
        (lambda: kernel("plain")(FLOATS, 1, 1.0), r"called without grid and block; .* kernel\[\(8, 4\), 128\]"),
        (lambda: kernel("plain")[1, 1](x=FLOATS), r"got x=; .* give arguments in order, such as kernel\["),
        (lambda: kernel("plain")[2**31, 1](FLOATS, 1, 1.0), "a grid has at most 2147483647 along x, such as grid=.214"),
        (lambda: kernel("plain")[(1, 70000), 1](FLOATS, 1, 1.0), "at most 65535 along y, such as grid=.1, 65535, 1."),
        (lambda: kernel("plain")[1, (1, 1, 65)](FLOATS, 1, 1.0), "a block has at most 64 along z"),
        (lambda: kernel("plain")[1], "got 1 of grid, block"),
        (lambda: kernel("plain")[1, 0], "got block 0; it takes one to three whole numbers from 1"),
        (lambda: kernel("plain")[1.5, 32], r"got grid 1\.5"),
        (lambda: kernel("plain")[1, 32, None, -1], "got -1 bytes of dynamic shared memory"),
        (lambda: wt.struct(), "got no member"),
        (lambda: wt.struct(x=[FLOATS, []]), r"x\[1\] is empty; an array of C\+\+ has elements"),
        (lambda: wt.struct(x=[FLOATS, "text"]), r"x\[1\] is str; members are arrays"),
        (lambda: wt.struct(x="text"), "x is str; members are arrays"),
        (lambda: wt.struct(FLOATS), "got ndarray; it takes a NumPy record"),
        (lambda: wt.struct(np.zeros((), "i4, f4"), x=FLOATS), "there is no field 'x'; there are f0, f1"),
        (lambda: wt.struct(np.zeros((), "i4, f4"), f0=FLOATS), "f0 has 4 bytes; a pointer takes 8"),
        (lambda: wt.tensor_map(5, (1,)), "got int; it takes an array"),
        (lambda: wt.tensor_map(np.zeros((8, 8), "f4").T, (8, 8)), "the elements along the last axis"),
        (lambda: wt.tensor_map(np.zeros(8, "c8"), (8,)), "elements of type complex64"),
        (lambda: wt.tensor_map(np.zeros(8, "f4"), (8,), dtype="f16"), "has 2 bytes and the array's float32 has 4"),
        (lambda: wt.tensor_map(np.zeros((4, 8), "f4"), (8,)), "box is .8,.; it takes 2 extents"),
        (lambda: wt.tensor_map(np.zeros((4, 8), "f4"), (2, 300)), "box is .300, 2.; .* axes .* the innermost first"),
        (lambda: wt.tensor_map(np.zeros((4, 8), "f4"), 8), "box is 8; it takes a whole .* such as box=.4, 8."),
        (lambda: wt.tensor_map(np.zeros((4, 8), "f4"), (2.5, 8)), "box is .2.5, 8.; it takes a whole number for each"),
        (lambda: wt.tensor_map(np.zeros((4, 8), "f4"), "48"), "box is '48'; it takes a whole number for each axis"),
        (lambda: wt.tensor_map(np.zeros(8, "f4"), (8,), element_strides=2), "element_strides is 2; .* such as .*=.1,."),
    ],
)
def test_what_is_no_kernel_launch_struct_or_map(make, said):
    with pytest.raises(wt.WarptileError, match=said):
        make()


def test_loading_nothing_before_it_is_used():
    code = "import warptile, sys; warptile.kernel; assert not any(m.startswith('warptile.gpu') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
