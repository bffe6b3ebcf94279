"""WMMA as data: layouts hold each element once, agree with the mma atoms they are made of, and requests fill them."""

import numpy as np
import pytest
from tensor_layouts import atoms_nv

from warptile.isa import wmma
from warptile.isa.fragment_access import Request
from warptile.isa.fragments import SAME, FragmentLayout, coordinates, gather_index, scatter_index
from warptile.isa.numerics import Accumulation, FloatFormat, accumulation

CAPABILITIES = (75, 80, 90)
FRAGMENTS = [
    pytest.param(shape, matrix, element, capability, id=f"{shape.name}-{matrix}-{element}-sm_{capability}")
    for capability in CAPABILITIES
    for shape in wmma.SHAPES
    if shape.capability <= capability
    for matrix, element in (("a", shape.type), ("b", shape.type), *(("c", c) for c in shape.accumulators))
]


@pytest.mark.parametrize(("shape", "matrix", "element", "capability"), FRAGMENTS)
def test_each_element_is_held_once_and_copies_agree(shape, matrix, element, capability):
    layout = shape.fragment(matrix, element, capability)
    places = coordinates(layout)[:, list(layout.distinct)].reshape(-1, 2)
    assert sorted(map(tuple, places.tolist())) == [(r, c) for r in range(layout.rows) for c in range(layout.columns)]
    for register in range(layout.registers):
        same = coordinates(layout)[:, layout.original(register)]
        assert (coordinates(layout)[:, register] == same).all()
    assert tuple(coordinates(layout)[7, layout.registers - 1, layout.elements - 1]) == layout.place(
        7, layout.registers - 1, layout.elements - 1
    )


@pytest.mark.parametrize(("shape", "matrix", "element", "capability"), FRAGMENTS)
def test_gather_undoes_scatter(shape, matrix, element, capability):
    layout = shape.fragment(matrix, element, capability)
    matrix_values = np.arange(layout.rows * layout.columns)
    held = matrix_values[scatter_index(layout)]
    assert (held[gather_index(layout)] == matrix_values).all()


def test_register_counts_are_those_of_the_ptx_isa():
    registers = {
        (s.name, s.type): tuple(s.fragment(m, e, 90).registers for m, e in (("a", s.type), ("b", s.type)))
        for s in wmma.SHAPES
    }
    assert {registers[f"m{m}n{n}k16", "f16"] for m, n in ((16, 16), (32, 8), (8, 32))} == {(8, 8)}
    assert [registers[name, "bf16"] for name in ("m16n16k16", "m32n8k16", "m8n32k16")] == [(4, 4), (8, 2), (2, 8)]
    assert [registers[name, "s8"] for name in ("m16n16k16", "m32n8k16", "m8n32k16")] == [(2, 2), (4, 1), (1, 4)]
    assert registers["m16n16k8", "tf32"] == (4, 4)
    assert registers["m8n8k4", "f64"] == registers["m8n8k32", "u4"] == registers["m8n8k128", "b1"] == (1, 1)
    accumulators = {(s.name, e): s.fragment("c", e, 90).registers for s in wmma.SHAPES for e in s.accumulators}
    assert accumulators["m16n16k16", "f16"] == 4
    assert accumulators["m32n8k16", "f32"] == accumulators["m8n32k16", "s32"] == accumulators["m16n16k8", "f32"] == 8
    assert accumulators["m8n8k4", "f64"] == accumulators["m8n8k128", "s32"] == 2


ATOMS = {
    "f16": "SM80_16x8x16_F32F16F16F32_TN", "bf16": "SM80_16x8x16_F32BF16BF16F32_TN",
    "s8": "SM80_16x8x16_S32S8S8S32_TN", "u8": "SM80_16x8x16_S32S8S8S32_TN", "tf32": "SM80_16x8x4_F32TF32TF32F32_TN",
    "f64": "SM80_8x8x4_F64F64F64F64_TN", "s4": "SM80_8x8x32_S32S4S4S32_TN", "u4": "SM80_8x8x32_S32S4S4S32_TN",
    "b1": "SM80_8x8x128_S32U1U1S32_TN_XORPOPC",
}  # fmt: skip


def in_lane_order(layout, wanted):
    """For each lane, where the wanted elements stand among its registers' elements, or None if some are elsewhere."""
    places = coordinates(layout)
    found = []
    for lane in range(32):
        held = {tuple(p): i for i, p in reversed(list(enumerate(places[lane].reshape(-1, 2).tolist())))}
        found.append([held.get(p) for p in wanted(lane)])
    return found


@pytest.mark.parametrize("shape", wmma.SHAPES, ids=lambda s: f"{s.name}-{s.type}")
def test_fragments_are_made_of_mma_atoms(shape):
    atom = getattr(atoms_nv, ATOMS[shape.type])
    m, n, k = atom.shape_mnk
    swapped = shape.n == 32
    left, right = (shape.fragment(x, shape.type, 90) for x in ("ba" if swapped else "ab"))
    sum_layout = shape.fragment("c", shape.accumulators[-1], 90)
    if swapped:
        left, right, sum_layout = left.transposed(), right.transposed(), sum_layout.transposed()
    sides = (
        (atom.a_layout, left, m, k), (atom.b_layout, right.transposed(), n, k), (atom.c_layout, sum_layout, m, n),
    )  # fmt: skip
    for atom_layout, fragment, rows, columns in sides:
        values = rows * columns // 32
        for row in range(0, fragment.rows, rows):
            for column in range(0, fragment.columns, columns):

                def wanted(lane, atom_layout=atom_layout, row=row, column=column, rows=rows, values=values):
                    indices = [atom_layout(lane, value) for value in range(values)]
                    return [(row + index % rows, column + index // rows) for index in indices]

                for positions in in_lane_order(fragment, wanted):
                    # Consecutive registers in the atom's own order: nothing has to be moved.
                    assert None not in positions
                    assert positions == list(range(positions[0], positions[0] + values))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "global"])
@pytest.mark.parametrize("layout_name", ["row", "col"])
@pytest.mark.parametrize(("shape", "matrix", "element", "capability"), FRAGMENTS)
def test_requests_fill_every_register_with_its_elements(shape, matrix, element, capability, layout_name, shared):
    position = {"a": 0, "b": 1}.get(matrix)
    if position is not None and layout_name not in {pair[position] for pair in shape.layouts}:
        return
    bits = wmma.ELEMENT_BITS[element]
    fragment = shape.fragment(matrix, element, capability)
    word = fragment.register_bits // 8
    pitch = 4096
    held = np.full((32, fragment.registers, word), -1)
    for request in wmma.access(shape, matrix, element, layout_name, shared=shared, capability=capability):
        starts = [s * pitch + f * bits // 8 for s, f in zip(request.slow, request.fast, strict=True)]
        read = np.array(starts)[:, None] + np.arange(request.bytes_per_lane)
        if request.kind == "ldmatrix":
            for i, register in enumerate(request.registers):
                halves = read[8 * i : 8 * i + 8].reshape(8, 8, 2)
                held[:, register] = (halves.transpose(1, 0, 2) if request.transposed else halves).reshape(32, 4)
        elif request.transposed:
            held[:, request.registers[0]] = read.reshape(8, 8, 2).transpose(1, 0, 2).reshape(32, 4)
        elif request.bytes_per_lane < word:
            held[:, request.registers[0], request.byte : request.byte + request.bytes_per_lane] = read
        else:
            held[:, list(request.registers)] = read.reshape(32, -1, word)
    places = coordinates(fragment)
    slow, fast = (places[..., 0], places[..., 1]) if layout_name == "row" else (places[..., 1], places[..., 0])
    first = (slow * pitch + fast * bits // 8)[:, :, :: max(1, 8 // bits)]
    expected = (first[..., None] + np.arange(max(1, bits // 8))).reshape(32, fragment.registers, word)
    distinct = list(fragment.distinct)
    assert (held[:, distinct] == expected[:, distinct]).all()


def test_request_counts_of_the_common_fragments():
    float16 = wmma.find("m16n16k16", "f16")

    def kinds(*arguments, **options):
        made = wmma.access(float16, *arguments, **options)
        return [(r.kind, len(r.registers) if r.kind == "ldmatrix" else r.bytes_per_lane) for r in made]

    # 16 x 16 halves are 512 bytes: one ldmatrix of four 128-byte matrices, or four 4-byte words of 32 lanes.
    assert kinds("a", "f16", "row", shared=True, capability=90) == [("ldmatrix", 4)]
    assert kinds("a", "f16", "row", shared=True, capability=75) == [("ldmatrix", 2)] * 2
    assert kinds("b", "f16", "row", shared=False, capability=90) == [("plain", 4)] * 4
    # 16 x 16 floats are 1024 bytes: four pairs along a row, or eight single floats down a column.
    assert kinds("c", "f32", "row", shared=True, capability=90) == [("plain", 8)] * 4
    assert kinds("c", "f32", "col", shared=True, capability=90) == [("plain", 4)] * 8


def test_layouts_that_are_none_are_refused():
    lane = ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
    FragmentLayout(8, 8, 16, 32, lane, (), ((0, 1),))
    with pytest.raises(ValueError, match="cover a 16x8 matrix"):
        FragmentLayout(16, 8, 16, 32, lane, (), ((0, 1),))
    with pytest.raises(ValueError, match="cover a 8x8 matrix"):
        FragmentLayout(8, 8, 16, 32, lane, ((0, 1),), ((0, 1),))
    with pytest.raises(ValueError, match="2 elements of 8 bits"):
        FragmentLayout(8, 8, 8, 32, lane, (), ((0, 1),))
    with pytest.raises(ValueError, match="only whole registers"):
        FragmentLayout(8, 8, 16, 32, lane, ((0, 1),), (SAME,))
    with pytest.raises(ValueError, match="5 lane bits"):
        FragmentLayout(8, 8, 16, 32, lane[:4], (), ((0, 1),))


def test_records_that_contradict_themselves_are_refused():
    native = (wmma.Native(75, "HMMA.1688", 4, 8),)
    with pytest.raises(ValueError, match="is not m16n16k8"):
        wmma.WmmaShape("m16n16k16", 16, 16, 8, "f16", ("f32",), 75, native)
    with pytest.raises(ValueError, match="no native instruction for sm_80"):
        wmma.WmmaShape("m16n16k16", 16, 16, 16, "f16", ("f32",), 80, native)
    with pytest.raises(ValueError, match="moves 3 bytes"):
        Request("plain", 3, (0,) * 32, (0,) * 32, (0,))
    with pytest.raises(ValueError, match="16 lanes address"):
        Request("ldmatrix", 16, (0,) * 8, (0,) * 8, (0, 1))
    with pytest.raises(ValueError, match="add up"):
        FloatFormat(16, 5, 11)
    for terms, fraction_bits in ((0, 24), (16, 0), (16, 41)):
        with pytest.raises(ValueError, match="such an adder is not known"):
            Accumulation(terms, fraction_bits)


def test_steps_of_the_adders():
    # (products a step, fraction bits) as published for each architecture.
    assert [(a.terms, a.fraction_bits) for a in (accumulation("f16", c) for c in (75, 80, 89, 90))] == [
        (8, 24), (8, 24), (8, 24), (16, 25)
    ]  # fmt: skip
    assert accumulation("bf16", 90).terms == 16
    assert [accumulation("tf32", c).terms for c in (80, 90)] == [4, 8]
    # WMMA's tf32 runs as two instructions of k = 4, which is what limits its step on sm_90.
    assert wmma.find("m16n16k8", "tf32").on(90).k == 4
