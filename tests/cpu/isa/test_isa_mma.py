"""mma.sync as data: fragments hold each element once and are those of an independent description."""

import numpy as np
import pytest
from tensor_layouts import atoms_nv

from warptile.isa import mma
from warptile.isa.fragments import coordinates, gather_index, scatter_index
from warptile.isa.mma import MmaShape

FRAGMENTS = [
    pytest.param(shape, matrix, element, layouts, id=f"{shape.name}-{shape.kind}-{matrix}-{element}-{layouts}")
    for shape in mma.SHAPES
    for layouts in shape.layouts
    for matrix, element in (
        ("a", shape.types[0]),
        ("b", shape.types[0]),
        *(("c", c) for c in sorted({t for pair in shape.accumulators for t in pair})),
    )
]


@pytest.mark.parametrize(("shape", "matrix", "element", "layouts"), FRAGMENTS)
def test_fragments_hold_each_element_once(shape, matrix, element, layouts):
    layout = shape.fragment(matrix, element, layouts)
    places = coordinates(layout).reshape(-1, 2)
    assert sorted(map(tuple, places.tolist())) == [(r, c) for r in range(layout.rows) for c in range(layout.columns)]
    values = np.arange(layout.rows * layout.columns)
    assert (values[scatter_index(layout)][gather_index(layout)] == values).all()


# name of the atom, shape, types of D, A, B and C, layouts where they matter
TN = ("row", "col")
ATOMS = [
    *((f"SM70_8x8x4_{d}F16F16{d}_{name}", "m8n8k4", (d.lower(), "f16", "f16", d.lower()), layouts)
      for d in ("F16", "F32")
      for name, layouts in (("TN", TN), ("NT", ("col", "row")), ("NN", ("col", "col")), ("TT", ("row", "row")))),
    ("SM75_16x8x8_F32F16F16F32_TN", "m16n8k8", ("f32", "f16", "f16", "f32"), TN),
    ("SM80_16x8x8_F16F16F16F16_TN", "m16n8k8", ("f16", "f16", "f16", "f16"), TN),
    ("SM80_16x8x16_F32F16F16F32_TN", "m16n8k16", ("f32", "f16", "f16", "f32"), TN),
    ("SM80_16x8x16_F16F16F16F16_TN", "m16n8k16", ("f16", "f16", "f16", "f16"), TN),
    ("SM80_16x8x8_F32BF16BF16F32_TN", "m16n8k8", ("f32", "bf16", "bf16", "f32"), TN),
    ("SM80_16x8x16_F32BF16BF16F32_TN", "m16n8k16", ("f32", "bf16", "bf16", "f32"), TN),
    ("SM80_16x8x4_F32TF32TF32F32_TN", "m16n8k4", ("f32", "tf32", "tf32", "f32"), TN),
    ("SM80_16x8x8_F32TF32TF32F32_TN", "m16n8k8", ("f32", "tf32", "tf32", "f32"), TN),
    ("SM80_8x8x4_F64F64F64F64_TN", "m8n8k4", ("f64",) * 4, TN),
    *((f"SM90_16x8x{k}_F64F64F64F64_TN", f"m16n8k{k}", ("f64",) * 4, TN) for k in (4, 8, 16)),
    ("SM80_8x8x16_S32S8S8S32_TN", "m8n8k16", ("s32", "s8", "s8", "s32"), TN),
    ("SM80_16x8x16_S32S8S8S32_TN", "m16n8k16", ("s32", "s8", "s8", "s32"), TN),
    ("SM80_16x8x32_S32S8S8S32_TN", "m16n8k32", ("s32", "u8", "s8", "s32"), TN),
    ("SM80_8x8x32_S32S4S4S32_TN", "m8n8k32", ("s32", "s4", "s4", "s32"), TN),
    # Not SM80_16x8x32_S32S4S4S32_TN, which the library gives the fragments of eight-bit types.
    ("SM80_16x8x64_S32S4S4S32_TN", "m16n8k64", ("s32", "s4", "u4", "s32"), TN),
    ("SM80_8x8x128_S32U1U1S32_TN_XORPOPC", "m8n8k128", ("s32", "b1", "b1", "s32"), TN),
    ("SM80_16x8x128_S32U1U1S32_TN_XORPOPC", "m16n8k128", ("s32", "b1", "b1", "s32"), TN),
    ("SM80_16x8x256_S32U1U1S32_TN_XORPOPC", "m16n8k256", ("s32", "b1", "b1", "s32"), TN),
    ("SM89_16x8x32_F32E4M3E5M2F32_TN", "m16n8k32", ("f32", "e4m3", "e5m2", "f32"), TN),
    ("SM89_16x8x32_F16E5M2E5M2F16_TN", "m16n8k32", ("f16", "e5m2", "e5m2", "f16"), TN),
]  # fmt: skip


def stacked_lane(atom, shape):
    """The lane of each of the atom's threads: an atom of Volta is the first of four products."""
    return [0, 1, 2, 3, 16, 17, 18, 19] if shape.matrices == 4 else range(32)


@pytest.mark.parametrize(("name", "shape_name", "types", "layouts"), ATOMS, ids=[atom[0] for atom in ATOMS])
def test_fragments_are_those_of_an_independent_description(name, shape_name, types, layouts):
    atom = getattr(atoms_nv, name)
    shape = mma.find(shape_name, types[1], types[2])
    assert shape is not None
    assert layouts in shape.layouts
    assert (types[0], types[3]) in shape.accumulators
    assert atom.shape_mnk == (shape.m, shape.n, shape.k)
    for matrix, described, rows, columns in (
        ("a", atom.a_layout, shape.m, shape.k), ("b", atom.b_layout, shape.n, shape.k),
        ("c", atom.c_layout, shape.m, shape.n),
    ):  # fmt: skip
        fragment = shape.fragment(matrix, {"a": types[1], "b": types[2], "c": types[0]}[matrix], layouts)
        fragment = fragment.transposed() if matrix == "b" else fragment
        places = coordinates(fragment).reshape(32, -1, 2)
        lanes = stacked_lane(atom, shape)
        assert len(lanes) * places.shape[1] == rows * columns
        for thread, lane in enumerate(lanes):
            # The atom numbers elements with the row running fastest.
            indices = [described(thread, value) for value in range(places.shape[1])]
            assert [(i % rows, i // rows) for i in indices] == list(map(tuple, places[lane].tolist()))


# What the library lacks, as the PTX ISA's "Matrix Fragments for mma" has it: A's row and column and B's row of the i-th
# element of lane 4 g + t; B's column is g.
FORMULAS = [
    ("m16n8k32", "s4", "", lambda i, t: (8 * (i >= 8), 8 * t + (i & 7)), lambda i, t: 8 * t + i),
    ("m16n8k64", "e2m1", "mxf4", lambda i, t: (8 * (i % 16 >= 8), 8 * t + (i & 7) + 32 * (i >= 16)),
     lambda i, t: 8 * t + (i & 7) + 32 * (i >= 8)),
    ("m16n8k16", "e4m3", "", lambda i, t: (8 * (i >= 4), 4 * t + (i & 3)), lambda i, t: 4 * t + i),
    ("m16n8k32", "e2m1", "f8f6f4", lambda i, t: (8 * (i % 8 >= 4), 4 * t + (i & 3) + 16 * (i >= 8)),
     lambda i, t: 4 * t + (i & 3) + 16 * (i >= 4)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "element", "kind", "left", "right"), FORMULAS, ids=[f"{f[0]}-{f[1]}" for f in FORMULAS]
)
def test_fragments_are_those_of_the_ptx_isa(name, element, kind, left, right):
    shape = mma.find(name, element, kind=kind)
    a, b = (coordinates(shape.fragment(matrix, element)).reshape(32, -1, 2).tolist() for matrix in "ab")
    for lane in range(32):
        g, t = divmod(lane, 4)
        rows_and_columns = [left(i, t) for i in range(len(a[lane]))]
        assert a[lane] == [[g + down, column] for down, column in rows_and_columns]
        assert b[lane] == [[right(i, t), g] for i in range(len(b[lane]))]


def test_the_four_products_of_volta_lie_in_quad_pairs():
    shape = mma.find("m8n8k4", "f16")
    for layouts in shape.layouts:
        for matrix, element, axis in (("a", "f16", 0), ("b", "f16", 1), ("c", "f32", 0), ("c", "f16", 0)):
            places = coordinates(shape.fragment(matrix, element, layouts))
            product = places[..., axis] // 8
            assert (product == (np.arange(32) // 4 % 4)[:, None, None]).all()


def test_register_counts_are_those_of_the_ptx_isa():
    def registers(name, element, accumulator):
        shape = mma.find(name, element)
        return tuple(shape.fragment(m, t).registers for m, t in (("a", element), ("b", element), ("c", accumulator)))

    assert registers("m8n8k4", "f16", "f32") == (2, 2, 8)
    assert registers("m8n8k4", "f16", "f16") == (2, 2, 4)
    assert registers("m16n8k8", "f16", "f16") == (2, 1, 2)
    assert registers("m16n8k16", "bf16", "f32") == (4, 2, 4)
    assert registers("m16n8k4", "tf32", "f32") == (2, 1, 4)
    assert registers("m16n8k16", "f64", "f64") == (8, 4, 4)
    assert registers("m8n8k16", "s8", "s32") == (1, 1, 2)
    assert registers("m16n8k64", "u4", "s32") == (4, 2, 4)
    assert registers("m16n8k256", "b1", "s32") == (4, 2, 4)
    assert registers("m16n8k16", "e5m2", "f16") == (2, 1, 2)


def test_shapes_are_found_by_name_types_and_kind():
    assert mma.find("m16n8k32", "s8", "u8").types == ("s8", "u8")
    assert mma.find("m16n8k32", "s4").bits == 4
    assert mma.find("m16n8k32", "e4m3", "e5m2").capability == 89
    assert mma.find("m16n8k32", "e4m3", "e2m1") is None
    assert mma.find("m16n8k32", "e4m3", "e2m1", "f8f6f4").capability == 120
    assert mma.find("m16n8k64", "e2m1", kind="mxf4").fragment("a", "e2m1").elements == 8
    assert mma.find("m16n8k32", "s8", "s4") is None
    assert mma.find("m16n8k16", "f16", "bf16") is None
    assert mma.find("m16n16k16", "f16") is None


def test_opcodes_are_spelled_as_ptx_has_them():
    half, bits, fp64 = mma.find("m16n8k16", "f16"), mma.find("m8n8k128", "b1"), mma.find("m16n8k8", "f64")
    assert half.opcode(("f32", "f16", "f16", "f32")) == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert bits.opcode(("s32", "b1", "b1", "s32"), operation="and").endswith("row.col.s32.b1.b1.s32.and.popc")
    assert fp64.opcode(("f64",) * 4, rounding="rz").endswith("row.col.rz.f64.f64.f64.f64")
    integers = mma.find("m16n8k64", "u4", "s4")
    assert integers.opcode(("s32", "u4", "s4", "s32"), saturate=True).endswith("row.col.satfinite.s32.u4.s4.s32")
    scaled = mma.find("m16n8k64", "e2m1", kind="mxf4nvf4")
    assert scaled.opcode(("f32", "e2m1", "e2m1", "f32"), scale=("4X", "ue4m3")) == (
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
    )
    for wrong, options in (
        (("f16", "f16", "f16", "f32"), {}),
        (("f32", "f16", "bf16", "f32"), {}),
        (("f32", "f16", "f16", "f32"), {"layouts": ("row", "row")}),
        (("f32", "f16", "f16", "f32"), {"saturate": True}),
        (("f32", "f16", "f16", "f32"), {"operation": "xor"}),
        (("f32", "f16", "f16", "f32"), {"rounding": "rz"}),
    ):
        with pytest.raises(ValueError, match="m16n8k16"):
            half.opcode(wrong, **options)


def test_operations_are_counted():
    assert mma.find("m16n8k16", "f16").flops == 2 * 16 * 8 * 16
    assert mma.find("m8n8k4", "f16").flops == 2 * 4 * 8 * 8 * 4
    # Every instruction of depth 32 bytes does as many operations as fit: twice as many for half the size.
    full = {name: mma.find(*name.split()).flops for name in ("m16n8k8 tf32", "m16n8k16 bf16", "m16n8k32 s8")}
    assert list(full.values()) == [2048, 4096, 8192]


def test_records_that_contradict_themselves_are_refused():
    sums = (("f32", "f32"),)
    MmaShape("m16n8k16", 16, 8, 16, ("f16",), sums, 80)
    with pytest.raises(ValueError, match="is not m16n8k8"):
        MmaShape("m16n8k16", 16, 8, 8, ("f16",), sums, 80)
    with pytest.raises(ValueError, match="differ in size"):
        MmaShape("m16n8k16", 16, 8, 16, ("f16", "s8"), sums, 80)
    with pytest.raises(ValueError, match="bit operations"):
        MmaShape("m16n8k16", 16, 8, 16, ("f16",), sums, 80, operations=(("xor", 75),))
    with pytest.raises(ValueError, match="block scales"):
        MmaShape("m16n8k32", 16, 8, 32, ("e4m3",), sums, 120, kind="mxf8f6f4")
    with pytest.raises(ValueError, match="needs types"):
        MmaShape("m16n8k16", 16, 8, 16, (), sums, 80)
    with pytest.raises(ValueError, match="cover a 16x24 matrix"):
        MmaShape("m16n8k24", 16, 8, 24, ("f16",), sums, 80)
