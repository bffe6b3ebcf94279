"""Kernel parameters on the emulator: structs by value, their padding, embedded pointers and tensor maps, limits."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warptile
from warptile.codegen.nvrtc import CompiledKernel, compile_source
from warptile.codegen.translation_unit import Source
from warptile.emulator import emulate
from warptile.errors import ParameterMismatch
from warptile.launch.access import Access
from warptile.launch.params import SCALAR_BYTES, Field, Params, Pointer, Scalar, StructBytes
from warptile.launch.spec import Argument, LaunchSpec
from warptile.launch.tensor_map import TensorMap
from warptile.ptx import parse

ARCH = "sm_90a"
DOCUMENT = Path(__file__).parents[3] / "docs" / "emulator.md"
HEADERS = Path(warptile.__file__).parent / "kernels"
CPP_TYPES = {
    "bool": "bool", "s8": "signed char", "u8": "unsigned char", "s16": "short", "u16": "unsigned short",
    "s32": "int", "u32": "unsigned", "s64": "long long", "u64": "unsigned long long", "f16": "__half",
    "bf16": "__nv_bfloat16", "f32": "float", "f64": "double",
}  # fmt: skip
MAP = TensorMap("A", "f32", (24, 16), (96,), (8, 4))


def compiled(text: str) -> CompiledKernel:
    """The kernel ``k`` of ``text``."""
    whole = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n" + text
    return compile_source(Source(whole, "k"), ARCH, options=(f"-I{HEADERS}",), cache=None)


def run(text: str, arguments: tuple[Argument, ...], operands: dict[str, np.ndarray], threads: int = 1) -> None:
    """Launch ``k`` of ``text``, which may write operand D."""
    kernel = compiled(text)
    spec = LaunchSpec(kernel.entry, (1, 1, 1), (threads, 1, 1), arguments)
    emulate(parse(kernel.ptx), spec, operands, accesses={"D": Access(writes=True)}, arch=ARCH)


def declared(params: Params) -> str:
    """A C++ struct ``P`` with those members."""
    lines = []
    for name, field in params.members:
        if isinstance(field, TensorMap):
            lines.append(f"alignas(64) unsigned long long {name}[16];")
        else:
            lines.append(f"{'const float*' if isinstance(field, Pointer) else CPP_TYPES[field.type]} {name};")
    return "struct P { " + " ".join(lines) + " };"


def random_field(random: np.random.Generator) -> Field:
    """A scalar, a pointer into A, a null pointer or a tensor map of A."""
    kinds = [*SCALAR_BYTES, "pointer", "pointer", "null", "map"]
    kind = str(random.choice(kinds))
    if kind == "map":
        return MAP
    if kind in ("pointer", "null"):
        return Pointer("A", 4 * int(random.integers(100))) if kind == "pointer" else Pointer(None)
    if "f" in kind:
        return Scalar(kind, float(random.integers(-99, 99)) / 4)
    if kind == "bool":
        return Scalar(kind, bool(random.integers(2)))
    half = 1 << min(8 * SCALAR_BYTES[kind], 32) - 1
    return Scalar(kind, int(random.integers(-half, half)) if kind[0] == "s" else int(random.integers(2 * half)))


def scalar_bytes(field: Scalar) -> bytes:
    """The value of a scalar as memory holds it."""
    if field.type in ("bool", "bf16"):
        return np.array(field.value).astype({"bool": np.bool_, "bf16": ml_dtypes.bfloat16}[field.type]).tobytes()
    kind, size = field.type[0], SCALAR_BYTES[field.type]
    return np.array(field.value).astype(np.dtype(f"{'i' if kind == 's' else kind}{size}")).tobytes()


@pytest.mark.parametrize("seed", range(3))
def test_a_struct_by_value_is_laid_out_as_the_compiler_does(seed: int) -> None:
    random = np.random.default_rng(seed)
    params = Params(tuple((f"m{i}", random_field(random)) for i in range(24)))
    names = [name for name, _ in params.members]
    offsets = "".join(
        f"numbers[{i}] = reinterpret_cast<const unsigned char*>(&params.{name}) - raw;" for i, name in enumerate(names)
    )
    kernel = f"""
        {declared(params)}
        __global__ void k(int before, const __grid_constant__ P params, unsigned long long* numbers, int after) {{
            numbers[{len(names)}] = sizeof(P);
            numbers[{len(names) + 1}] = alignof(P);
            numbers[{len(names) + 2}] = before + after;
            const unsigned char* raw = reinterpret_cast<const unsigned char*>(&params);
            {offsets}
            for (int i = 0; i < sizeof(P); ++i) reinterpret_cast<unsigned char*>(numbers + 32)[i] = raw[i];
        }}"""
    numbers = np.zeros(32 + params.size_bytes // 8 + 8, np.uint64)
    a = np.arange(24 * 16, dtype=np.float32).reshape(16, 24)
    run(kernel, (Scalar("s32", 7), params, Pointer("D"), Scalar("s32", 11)), {"A": a, "D": numbers})
    assert numbers[: len(names)].tolist() == list(params.offsets.values())
    assert numbers[len(names) : len(names) + 3].tolist() == [params.size_bytes, params.alignment, 18]
    content = numbers[32:].view(np.uint8)
    used = np.zeros(params.size_bytes, np.bool_)
    for name, field in params.members:
        start = params.offsets[name]
        if isinstance(field, Scalar):
            raw = scalar_bytes(field)
            assert content[start : start + len(raw)].tobytes() == raw, (name, field)
            used[start : start + len(raw)] = True
        elif isinstance(field, Pointer):
            assert (content[start : start + 8].view(np.uint64)[0] != 0) == (field.operand is not None), name
            used[start : start + 8] = True
        else:
            assert content[start : start + 128].any(), name
            used[start : start + 128] = True
    assert not content[: params.size_bytes][~used].any()


def test_the_random_structs_have_padding_and_every_kind_of_member() -> None:
    fields = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        params = Params(tuple((f"m{i}", random_field(random)) for i in range(24)))
        fields += [field for _, field in params.members]
        sizes = sum(128 if isinstance(f, TensorMap) else 8 if isinstance(f, Pointer) else SCALAR_BYTES[f.type]
                    for _, f in params.members)  # fmt: skip
        assert params.size_bytes > sizes
    assert {f.type for f in fields if isinstance(f, Scalar)} == set(SCALAR_BYTES)
    assert {f.operand for f in fields if isinstance(f, Pointer)} == {"A", None}
    assert MAP in fields


def test_small_scalars_are_parameters_of_their_own_size() -> None:
    kernel = """
        __global__ void k(float* d, bool flip, unsigned char a, signed char b, short c, unsigned short e, __half h,
                          __nv_bfloat16 g) {
            d[0] = flip ? -1 : 1, d[1] = a, d[2] = b, d[3] = c, d[4] = e, d[5] = h, d[6] = g;
        }"""
    d = np.zeros(7, np.float32)
    given = (("bool", True), ("u8", 200), ("s8", -100), ("s16", -30000), ("u16", 60000), ("f16", 1.5), ("bf16", 1e30))
    run(kernel, (Pointer("D"), *(Scalar(kind, value) for kind, value in given)), {"D": d})
    assert d.tolist() == [-1, 200, -100, -30000, 60000, 1.5, float(ml_dtypes.bfloat16(1e30))]


NESTED = """
    struct Row { const float* from; short n; bool on; char pad; };
    struct Table { Row rows[3]; float* d; union { float f; int i; } scale; int rest[600]; };
    __global__ void k(const Table t, int last) {
        for (int r = 0; r < 3; ++r)
            if (t.rows[r].on && threadIdx.x < t.rows[r].n)
                t.d[4 * r + threadIdx.x] = t.scale.f * t.rows[r].from[threadIdx.x] + t.rest[599] + last;
    }"""


def test_any_struct_is_given_as_its_bytes_and_its_pointers() -> None:
    row = np.dtype([("from", "u8"), ("n", "i2"), ("on", "?"), ("pad", "i1"), ("", "u4")])
    table = np.zeros(1, np.dtype([("rows", row, 3), ("d", "u8"), ("scale", "f4"), ("rest", "i4", 600), ("", "u4")]))
    table["rows"]["n"], table["rows"]["on"], table["scale"] = [4, 4, 2], [True, False, True], 2
    table["rest"][0, 599] = 5
    pointers = ((0, Pointer("A")), (16, Pointer(None)), (32, Pointer("A", 40)), (48, Pointer("D")))
    a, d = np.arange(16, dtype=np.float32), np.zeros(12, np.float32)
    given = StructBytes(table.tobytes(), pointers)
    run(NESTED, (given, Scalar("s32", 100)), {"A": a, "D": d}, threads=4)
    assert d.tolist() == [105, 107, 109, 111, 0, 0, 0, 0, 125, 127, 0, 0]
    assert LaunchSpec("k", (1, 1, 1), (1, 1, 1), (given,)).operands == ("A", "D")


@pytest.mark.parametrize("fields", [((12, Pointer("A")),), ((0, Pointer("A")), (4, Pointer("A"))), ((0, MAP),)])
def test_pointers_of_a_struct_lie_in_it_and_apart(fields: tuple[tuple[int, Pointer | TensorMap], ...]) -> None:
    with pytest.raises(warptile.errors.ArgumentError, match="struct of 16 bytes: the"):
        StructBytes(bytes(16), fields)


def test_pointers_inside_a_struct_are_checked_as_others_are() -> None:
    kernel = """
        struct P { const float* a; int n; float* d; };
        __global__ void k(const __grid_constant__ P p) {
            if (threadIdx.x < p.n) p.d[threadIdx.x] = p.a[threadIdx.x];
        }"""
    a, d = np.arange(32, dtype=np.float32), np.zeros(24, np.float32)
    params = Params((("a", Pointer("A", 16)), ("n", Scalar("s32", 24)), ("d", Pointer("D"))))
    run(kernel, (params,), {"A": a, "D": d}, threads=32)
    np.testing.assert_array_equal(d, a[4:28])
    with pytest.raises(warptile.errors.IllegalAddress, match=r"4 bytes at D\+96, but D has 96 bytes"):
        run(kernel, (params.with_values({"n": 25}),), {"A": a, "D": d}, threads=32)


def test_a_tensor_map_inside_a_struct_describes_its_tensor() -> None:
    kernel = """
        #include "ptx/cp_async_bulk_tensor.cuh"
        #include "ptx/mbarrier.cuh"
        #include "ptx/shared_memory.cuh"
        using namespace warptile;
        struct P { float scale; TensorMap map; float* d; };
        __global__ void k(const __grid_constant__ P p) {
            __shared__ alignas(128) float box[4][8];
            __shared__ unsigned long long full;
            if (threadIdx.x == 0) {
                mbarrier_init(shared_address(&full), 1);
                fence_mbarrier_init();
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                mbarrier_arrive_expect_tx(shared_address(&full), sizeof(box));
                cp_async_bulk_tensor_load_2d(shared_address(box), p.map, 8, 3, shared_address(&full));
            }
            mbarrier_wait(shared_address(&full), 0);
            p.d[threadIdx.x] = p.scale * box[threadIdx.x / 8][threadIdx.x % 8];
        }"""
    a, d = np.arange(24 * 16, dtype=np.float32).reshape(16, 24), np.zeros((4, 8), np.float32)
    params = Params((("scale", Scalar("f32", 2.0)), ("map", MAP), ("d", Pointer("D"))))
    assert params.offsets == {"scale": 0, "map": 64, "d": 192}
    run(kernel, (params,), {"A": a, "D": d}, threads=32)
    np.testing.assert_array_equal(d, 2 * a[3:7, 8:16])


def test_parameters_have_up_to_32764_bytes() -> None:
    kernel = """
        struct P { int* d; int values[8188]; };
        __global__ void k(const __grid_constant__ P p, int last) {
            for (int i = threadIdx.x; i < 8188; i += 64) p.d[i] = p.values[i];
            if (threadIdx.x == 0) p.d[8188] = last;
        }"""
    values = [17 * i % 8191 for i in range(8188)]
    params = Params((("d", Pointer("D")), *((f"v{i}", Scalar("s32", value)) for i, value in enumerate(values))))
    assert params.size_bytes + 4 == 32_764
    d = np.zeros(8189, np.int32)
    run(kernel, (params, Scalar("s32", -3)), {"D": d}, threads=64)
    assert d.tolist() == [*values, -3]


def test_more_bytes_are_refused_with_the_limit() -> None:
    ptx = """
        .version 8.6
        .target sm_90a
        .address_size 64
        .visible .entry k(.param .align 8 .b8 first[32760], .param .u64 second) { ret; }"""
    params = Params(tuple((f"v{i}", Scalar("u64", i)) for i in range(4095)))
    spec = LaunchSpec("k", (1, 1, 1), (32, 1, 1), (params, Scalar("u64", 1)))
    with pytest.raises(ParameterMismatch, match=r"parameter 1, second, ends at byte 32768; .* at most 32764 bytes"):
        emulate(parse(ptx), spec, {}, arch=ARCH)


STRUCT = """
    struct P { float* d; double x; int n; };
    __global__ void k(const __grid_constant__ P params, float factor) { params.d[0] = params.x * params.n * factor; }"""
POINTER, X, N = ("d", Pointer("D")), ("x", Scalar("f64", 1.5)), ("n", Scalar("s32", 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (Params((POINTER, ("x", Scalar("f32", 1.5)), N)), Scalar("f32", 2.0)),
            "parameter 0, _Z1k1Pf_param_0, has 24 bytes in the kernel; the launch gives 16: a struct of d at 0, x at "
            "8, n at 12",
        ),
        (
            (Params((POINTER, X, N, ("m", Scalar("s64", 1)))), Scalar("f32", 2.0)),
            "parameter 0, _Z1k1Pf_param_0, has 24 bytes in the kernel; the launch gives 32",
        ),
        (
            (Params(()), Scalar("f32", 2.0)),
            "parameter 0, _Z1k1Pf_param_0, has 24 bytes in the kernel; the launch gives 0: a struct of no members",
        ),
        (
            (Params((POINTER, X, N)), Scalar("f64", 2.0)),
            "parameter 1, _Z1k1Pf_param_1, has 4 bytes in the kernel; the launch gives 8: f64 2.0",
        ),
        (
            (Params((POINTER, X, N)), Pointer("D")),
            "parameter 1, _Z1k1Pf_param_1, has 4 bytes in the kernel; the launch gives 8: a pointer to D",
        ),
        (
            (MAP, Scalar("f32", 2.0)),
            "parameter 0, _Z1k1Pf_param_0, has 24 bytes in the kernel; the launch gives 128: a tensor map of A",
        ),
        ((Params((POINTER, X, N)),), "the kernel takes 2 parameters and the launch gives 1"),
    ],
)  # fmt: skip
def test_another_size_than_the_kernels_names_the_parameter_and_both_sizes(
    arguments: tuple[Argument, ...], message: str
) -> None:
    operands = {"A": np.zeros((16, 24), np.float32), "D": np.zeros(1, np.float32)}
    with pytest.raises(ParameterMismatch, match=re.escape(message)) as caught:
        run(STRUCT, arguments, operands)
    assert caught.value.kernel == "_Z1k1Pf"


def test_the_struct_with_the_right_sizes_runs() -> None:
    d = np.zeros(1, np.float32)
    run(STRUCT, (Params((POINTER, X, N)), Scalar("f32", 2.0)), {"D": d})
    assert d[0] == 6


def test_the_calls_of_the_documentation_run() -> None:
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", DOCUMENT.read_text(), re.M)
    code = [re.sub("^    ", "", block, flags=re.M) for block in blocks if "LaunchSpec(" in block]
    assert len(code) == 3
    text = """
        extern "C" __global__ void scale(float* y, const float* x, int n, float by) {
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = by * x[i];
        }"""
    whole = """
        struct P { float* y; const float* x; int n; float by; };
        extern "C" __global__ void scale_struct(const __grid_constant__ P p) {
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < p.n) p.y[i] = p.by * p.x[i];
        }"""
    x, y = np.arange(512, dtype=np.float32), np.zeros(512, np.float32)
    names = {"np": np, "x": x, "y": y, "ptx": compile_source(Source(text, "scale"), ARCH, cache=None).ptx}
    exec(code[0], names)
    np.testing.assert_array_equal(y, 2 * x)
    call = next(line for line in code[0].splitlines() if line.startswith("report ="))
    names["ptx"] = compile_source(Source(whole, "scale_struct"), ARCH, cache=None).ptx
    for block in code[1:]:
        y.fill(0)
        exec(block + call, names)
        np.testing.assert_array_equal(y, 2 * x)
