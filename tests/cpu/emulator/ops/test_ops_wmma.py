"""WMMA on the emulator: kernels written with <mma.h>, compiled by NVRTC, for every shape, type and memory."""

import numpy as np
import pytest

import wmma_cases
from emulation import run_cuda
from warptile.codegen.nvrtc import compile_ptx
from warptile.codegen.translation_unit import Source
from warptile.emulator import emulate
from warptile.emulator.arithmetic import accumulate
from warptile.errors import DivergentCollective, IllegalAddress, MisalignedAccess, UninitializedRead, UnknownInstruction
from warptile.isa import wmma
from warptile.isa.fragments import scatter_index
from warptile.isa.numerics import accumulation
from warptile.launch.access import Access
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

CASES = wmma_cases.cases(90, thorough=False)
TILES = 3


@pytest.fixture(scope="module")
def module():
    text = wmma_cases.translation_unit(CASES)
    return parse(compile_ptx(Source(text, CASES[0].name), "sm_90a").ptx)


def by_definition(case, values):
    """What `accumulate` makes of whole matrices: the kernel adds layouts and memory to this, nothing else."""
    a, b, c = values["a"], values["b"].swapaxes(1, 2), values["c"]
    element = case.shape.type
    if element == "b1":
        words = [np.packbits(x.astype(np.uint8), axis=-1, bitorder="little").view(np.uint32) for x in (a, b)]
        return accumulate.multiply_bits(*words, c.astype(np.int32), exclusive=case.operation == "xor")
    if element in ("s8", "u8", "s4", "u4"):
        narrow = np.uint8 if element.startswith("u") else np.int8
        return accumulate.multiply_integer(a.astype(narrow), b.astype(narrow), c.astype(np.int32), saturate=False)
    if element == "f64":
        return accumulate.multiply_double(a, b, c, "rn")
    inner = "f16" if (case.c, case.d) == ("f16", "f16") else "f32"
    raw = [
        np.ascontiguousarray(x.astype(wmma_cases.STORAGE[e])).view(np.uint16 if e in ("f16", "bf16") else np.uint32)
        for x, e in ((a, element), (b, element), (c, inner))
    ]
    model = accumulation(element, 90)
    if element == "tf32":  # two instructions of k = 4, one after the other
        low, high = slice(0, 4), slice(4, 8)
        first = accumulate.multiply_float(raw[0][..., low], raw[1][..., low], raw[2], element, inner, model)
        d = accumulate.multiply_float(raw[0][..., high], raw[1][..., high], first, element, inner, model)
    else:
        d = accumulate.multiply_float(*raw, element, inner, model)
    return d.view(np.float16 if inner == "f16" else np.float32).astype(wmma_cases.STORAGE[case.d])


def reference(case, values):
    """The product in float64 or int64, and how far a result may be from it."""
    a, b, c = values["a"], values["b"], values["c"]
    if case.shape.type == "b1":
        combine = np.bitwise_xor if case.operation == "xor" else np.bitwise_and
        return combine(a[:, :, :, None], b[:, None]).sum(axis=2) + c, 0
    exact = np.einsum("imk,ikn->imn", a, b) + c
    if case.d == "s32":
        return exact, 0
    size = np.einsum("imk,ikn->imn", abs(a), abs(b)) + abs(c)
    rounding = {"f16": 2.0**-11, "f32": 2.0**-23, "f64": 2.0**-52}
    return exact, size * (16 + 2) * rounding["f64" if case.d == "f64" else "f32"] + size * rounding[case.d]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_load_multiply_store(module, case):
    first, second = ("normal", "exponents") if "normal" in wmma_cases.kinds(case) else ("random", "random")
    for seed, kind in enumerate((first, second)):
        values = wmma_cases.inputs(case, kind, TILES, seed)
        buffers = wmma_cases.operands(case, values)
        report = wmma_cases.run_emulated(module, case, buffers, "sm_90a")
        got = wmma_cases.unpack(case, "d", buffers["d"])
        np.testing.assert_array_equal(got, by_definition(case, values))
        exact, bound = reference(case, values)
        assert (abs(got.astype(exact.dtype) - exact) <= bound).all()
        gaps = wmma_cases.pack(case, "d", got)
        np.testing.assert_array_equal(buffers["d"], gaps)  # nothing between the rows was touched
        count = wmma.native_count(case.shape, 90, case.operation)
        assert report.counters["tensor_instructions"] == TILES * count
        assert report.counters["tensor_flops"] == TILES * 2 * case.shape.m * case.shape.n * case.shape.k


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fragments_hold_what_the_layout_says(module, case):
    values = wmma_cases.inputs(case, wmma_cases.kinds(case)[0], 1)
    buffers = wmma_cases.operands(case, values)
    wmma_cases.run_emulated(module, case, buffers, "sm_90a")
    for which in "abc":
        _, _, _, element = case.matrix(which)
        layout = case.shape.fragment(which, element, 90)
        bits = wmma.ELEMENT_BITS[element]
        expected = values[which][0].ravel()[scatter_index(layout)]
        if bits < 8:
            stream = (expected.astype(np.int64)[:, None] >> np.arange(bits) & 1).astype(np.uint8)
            raw = np.packbits(stream.ravel(), bitorder="little")
        else:
            raw = expected.astype(wmma_cases.STORAGE[element]).view(np.uint8)
        np.testing.assert_array_equal(buffers[f"f{which}"].ravel(), raw)


@pytest.mark.parametrize("kind", ["extreme", "subnormal", "special", "overflow", "zeros", "ignored"])
def test_unusual_values_pass_through_unharmed(module, kind):
    for case in CASES:
        if kind in wmma_cases.kinds(case) and not case.shared:
            with np.errstate(all="ignore"):
                values = wmma_cases.inputs(case, kind, 2, seed=9)
                buffers = wmma_cases.operands(case, values)
                wmma_cases.run_emulated(module, case, buffers, "sm_90a")
                got = wmma_cases.unpack(case, "d", buffers["d"])
                np.testing.assert_array_equal(got, by_definition(case, values), err_msg=case.name)


# -- PTX written by hand ------------------------------------------------------------------------------------------


def run_ptx(body, declarations="", *, arch="sm_90a", a=None, arguments=(), shared=0):
    """One warp; %rd1 is the address of a buffer of 16 KB, which holds `a` at first and is returned."""
    buffer = np.zeros(16384, np.uint8)
    if a is not None:
        raw = np.ascontiguousarray(a).view(np.uint8).ravel()
        buffer[: raw.size] = raw
    parameters = "".join(f", .param .u32 p{i}" for i in range(len(arguments)))
    text = f"""
.version 9.0
.target {arch}
.address_size 64
.extern .shared .align 128 .b8 tile[];
.entry k(.param .u64 buffer{parameters}) {{
.reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %rd<9>; .reg .f64 %fd<9>;
{declarations}
ld.param.u64 %rd1, [buffer];
{body}
ret;
}}"""
    spec = LaunchSpec(
        "k", (1, 1, 1), (32, 1, 1), (Pointer("X"), *(Scalar("u32", v) for v in arguments)), dynamic_shared_bytes=shared
    )
    report = emulate(parse(text), spec, {"X": buffer}, accesses={"X": Access(writes=True)}, arch=arch)
    return buffer, report


OWN_PLACE = "mov.u32 %r9, %laneid; mul.wide.u32 %rd2, %r9, 8; add.u64 %rd2, %rd2, %rd1;"
"""%rd2 becomes the address of eight bytes of the lane's own."""

EIGHT = "{" + ",".join(f"%r{i}" for i in range(8)) + "}"
FOUR = "{" + ",".join(f"%r{i}" for i in range(4)) + "}"
LOAD = f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {EIGHT}, "


def test_the_stride_is_that_of_a_dense_matrix_when_left_out():
    values = np.arange(256, dtype=np.float16)
    for stride in ("", ", 16"):  # C of 16 x 16
        body = f"""wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {FOUR}, [%rd1];
        wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd1+1024], {FOUR}{stride};"""
        buffer, _ = run_ptx(body, a=values)
        np.testing.assert_array_equal(buffer[1024:1536].view(np.float16), values)
    narrow = "{%r0,%r1}"
    # B of m32n8k16, column-major: columns of 16 are 16 apart.
    body = f"""wmma.load.b.sync.aligned.col.m32n8k16.global.bf16 {narrow}, [%rd1];
    wmma.load.b.sync.aligned.col.m32n8k16.global.bf16 {{%r2,%r3}}, [%rd1], 16;
    mov.u32 %r9, %laneid; mul.wide.u32 %rd2, %r9, 16; add.u64 %rd2, %rd2, %rd1;
    st.global.v4.b32 [%rd2+2048], {FOUR};"""
    buffer, _ = run_ptx(body, a=np.arange(128, dtype=np.uint16))
    lanes = buffer[2048 : 2048 + 512].view(np.uint32).reshape(32, 4)
    np.testing.assert_array_equal(lanes[:, :2], lanes[:, 2:])
    assert lanes[5].tolist()[:2] == [18 | 19 << 16, 26 | 27 << 16]  # lane 5: column 1, rows 2, 3 and 10, 11


def test_saturation_of_four_and_eight_bits():
    top = 2**31 - 1
    for shape, element, registers, most in (("m16n16k16", "s8", 2, 127), ("m8n8k32", "s4", 1, 7)):
        side = "{" + ",".join("%r20" for _ in range(registers)) + "}"
        sums = 8 if element == "s8" else 2
        c = "{" + ",".join("%r21" for _ in range(sums)) + "}"
        d = "{" + ",".join(f"%r{i}" for i in range(sums)) + "}"
        word = 0x7F7F7F7F if element == "s8" else 0x77777777
        k = 16 if element == "s8" else 32
        for mode, expected in ((".satfinite", top), ("", (top - 5 + most * most * k + 2**31) % 2**32 - 2**31)):
            body = f"""mov.b32 %r20, {word:#x}; mov.b32 %r21, {top - 5};
            wmma.mma.sync.aligned.row.col.{shape}.s32.{element}.{element}.s32{mode} {d}, {side}, {side}, {c};
            {OWN_PLACE} st.global.b32 [%rd2], %r1;"""
            buffer, _ = run_ptx(body)
            assert (buffer[:256].view(np.int32)[::2] == expected).all()


def test_rounding_of_doubles_can_be_chosen():
    for rounding in ("", ".rn", ".rz", ".rp", ".rm"):
        body = f"""mov.f64 %fd1, 0d3C00000000000000; mov.f64 %fd2, 0d3FF0000000000000; mov.f64 %fd3, 0d3FF0000000000000;
        wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64{rounding} {{%fd4,%fd5}}, {{%fd1}}, {{%fd2}}, {{%fd3,%fd3}};
        {OWN_PLACE} st.global.f64 [%rd2], %fd4;"""
        # 1 + 2**-63, four times over: each rounding up adds one unit in the last place, no other adds anything.
        buffer, _ = run_ptx(body)
        assert (buffer[:256].view(np.float64) == (1 + 4 * 2.0**-52 if rounding == ".rp" else 1)).all()


@pytest.mark.parametrize(
    ("text", "arch", "message"),
    [
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 " + FOUR + ", [%rd1], 16;", "sm_75", "needs sm_80"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f64 " + FOUR + ", [%rd1], 16;", "sm_90a", "no A of type .f64"),
        ("wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r0}, [%rd1], 32;", "sm_90a", "has no .col A"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 " + FOUR + ", [%rd1], 16;", "sm_90a", "takes 8 registers"),
        ("wmma.load.a.sync.row.m16n16k16.global.f16 " + EIGHT + ", [%rd1], 16;", "sm_90a", "needs one of .aligned"),
        ("wmma.load.a.sync.aligned.row.m16n16k32.global.f16 " + EIGHT + ", [%rd1], 16;", "sm_90a", "needs one of"),
        (LOAD.replace(".global", ".local") + "[%rd1], 16;", "sm_90a", "unknown modifier .local"),
        (f"wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16.satfinite {FOUR}, {EIGHT}, {EIGHT}, {FOUR};", "sm_90a",
         "satfinite is for integers"),
        (f"wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16.rn {FOUR}, {EIGHT}, {EIGHT}, {FOUR};", "sm_90a",
         "is for f64"),
        ("wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0,%r1}, {%r2}, {%r3}, {%r4,%r5};", "sm_75",
         "needs sm_80"),
        ("wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0,%r1}, {%r2}, {%r3}, {%r4,%r5};", "sm_90a",
         "bit operations xor, and"),
        ("wmma.mma.sync.aligned.col.col.m8n8k32.s32.s4.s4.s32 {%r0,%r1}, {%r2}, {%r3}, {%r4,%r5};", "sm_90a",
         "needs .row.col"),
        ("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.u4.s32 {%r0,%r1}, {%r2}, {%r3}, {%r4,%r5};", "sm_90a",
         "being alike"),
        ("wmma.mma.sync.aligned.row.col.m8n8k32.f32.s4.s4.f32 {%f0,%f1}, {%r2}, {%r3}, {%f4,%f5};", "sm_90a",
         "does not multiply"),
        ("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r0,%r1}, {%r2,%r6}, {%r3}, {%r4,%r5};", "sm_90a",
         "takes 1 registers where 2"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_named(text, arch, message):
    with pytest.raises(UnknownInstruction, match=message):
        run_ptx(text, arch=arch)


def test_memory_errors_are_named():
    with pytest.raises(MisalignedAccess, match="leading dimension 20 elements is not a multiple of 16 bytes"):
        run_ptx(LOAD + "[%rd1], 20;")
    with pytest.raises(MisalignedAccess, match=r"address \S+ is not a multiple of 16 bytes"):
        run_ptx(LOAD + "[%rd1+8], 16;")
    with pytest.raises(IllegalAddress, match="X has 16384 bytes"):
        run_ptx(LOAD + "[%rd1+16000], 16;")
    sums = "{" + ",".join(f"%f{i}" for i in range(8)) + "}"
    multiplied = f"wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {sums}, {EIGHT}, {EIGHT}, {sums};"
    stored = f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {sums};"
    zeros = "".join(f"mov.f32 %f{i}, 0f00000000;" for i in range(8))
    with pytest.raises(
        UninitializedRead, match=r"read at .* from shared memory at byte 1024, which nothing has written"
    ):
        run_ptx(f"{zeros} {LOAD.replace('global', 'shared')} [tile], 16; {multiplied} {stored}", shared=512)
    with pytest.raises(IllegalAddress, match="shared memory"):
        run_ptx(LOAD.replace("global", "shared") + "[tile], 16;", shared=256)
    # A row of 8 bytes is what PTX asks of s8 fragments, but ldmatrix reads 16.
    body = "wmma.load.a.sync.aligned.row.m16n16k16.shared.s8 {%r0,%r1}, [tile+8], 24;"
    with pytest.raises(MisalignedAccess, match="not a multiple of 16 bytes"):
        run_ptx(body, shared=1024)


def test_lanes_that_disagree_are_named():
    body = "mov.u32 %r9, %laneid; mul.wide.u32 %rd2, %r9, 32; add.u64 %rd2, %rd1, %rd2;\n"
    with pytest.raises(DivergentCollective, match=r"same address; thread \(1, 0, 0\)"):
        run_ptx(body + LOAD + "[%rd2], 16;")
    with pytest.raises(DivergentCollective, match=r"same stride; thread \(1, 0, 0\)"):
        run_ptx("mov.u32 %r9, %laneid; shl.b32 %r9, %r9, 4;\n" + LOAD + "[%rd1], %r9;")


def test_generic_addresses_reach_shared_memory():
    body = f"""mov.u32 %r9, %laneid; mul.wide.u32 %rd2, %r9, 16; add.u64 %rd3, %rd1, %rd2;
    mov.u64 %rd4, tile; add.u64 %rd5, %rd4, %rd2; cvta.shared.u64 %rd6, %rd4;
    ld.global.v4.b32 {FOUR}, [%rd3]; st.shared.v4.b32 [%rd5], {FOUR}; bar.warp.sync -1;
    wmma.load.c.sync.aligned.row.m16n16k16.f16 {FOUR}, [%rd6], 16;
    wmma.store.d.sync.aligned.col.m16n16k16.f16 [%rd6], {FOUR}, 16; bar.warp.sync -1;
    ld.shared.v4.b32 {FOUR}, [%rd5]; st.global.v4.b32 [%rd3+1024], {FOUR};"""
    values = np.arange(256, dtype=np.float16)
    buffer, report = run_ptx(body, a=values, shared=512)
    np.testing.assert_array_equal(buffer[1024:1536].view(np.float16).reshape(16, 16), values.reshape(16, 16).T)
    # Generic: four loads of 4 bytes a lane and as many stores, beside one vector load and one vector store.
    assert report.counters["shared_load_requests"] == 4 + 1
    assert report.counters["shared_store_requests"] == 4 + 1


# -- counters ----------------------------------------------------------------------------------------------------

STAGED = """
#include <mma.h>
using namespace nvcuda;
constexpr int LD = %d;
using Layout = wmma::%s;
extern "C" __global__ void k(half* a, float* d) {
  __shared__ __align__(128) half tile[16 * LD];
  for (int i = threadIdx.x; i < 16 * LD / 2; i += 32) reinterpret_cast<unsigned*>(tile)[i] = 0;
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, Layout> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
  wmma::fill_fragment(z, 0.0f);
  wmma::load_matrix_sync(x, tile, LD);
  wmma::load_matrix_sync(y, a, 16);
  wmma::mma_sync(z, x, y, z);
  wmma::store_matrix_sync(d, z, 16, wmma::mem_row_major);
}
"""


def counted(leading_dimension, layout="row_major", arch="sm_90a"):
    text = STAGED % (leading_dimension, layout)
    a, d = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float32)
    return run_cuda(text, "k", [a, d], outputs={0: False, 1: True}, arch=arch).counters


@pytest.mark.parametrize("layout", ["row_major", "col_major"])
@pytest.mark.parametrize(("leading_dimension", "ways"), [(16, 2), (24, 1), (32, 4), (40, 1), (64, 8), (72, 1)])
def test_ldmatrix_conflicts_are_counted_by_row_distance(leading_dimension, ways, layout):
    # One request of four matrices, each eight rows of 16 bytes. Rows of 16 halves are 32 bytes or 8 of the 32 banks
    # apart: rows 0 and 4 meet. Rows of 24 are 12 banks apart: 0, 12, 24, 4, 16, 28, 8, 20, none meet. And so on.
    found = counted(leading_dimension, layout)
    assert found["shared_load_requests"] == 1
    assert found["shared_load_wavefronts"] == 4 * ways
    assert found["shared_load_wavefronts_ideal"] == 4
    assert found["shared_load_conflict_ratio"] == ways


def test_turing_loads_two_matrices_at_a_time():
    found = counted(24, arch="sm_75")
    assert found["shared_load_requests"] == 2
    assert found["shared_load_wavefronts"] == 4


def test_global_fragments_are_counted_in_sectors():
    found = counted(24)
    # B, 16 x 16 halves in rows of 32 bytes: four requests of 8 rows, 16 bytes of each: 8 sectors each, half used.
    assert found["global_load_requests"] == 4
    assert found["global_load_sectors"] == 4 * 8
    assert found["global_load_bytes"] == 512
    # D, 16 x 16 floats in rows of 64 bytes: four requests of 8 bytes a lane, 8 rows of 32 bytes: 8 sectors each.
    assert found["global_store_requests"] == 4
    assert found["global_store_sectors"] == 4 * 8
    assert found["global_store_bytes"] == 1024
