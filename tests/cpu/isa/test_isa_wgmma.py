"""wgmma as data: fragments and shared-memory operands against a library's layouts, and the ISA's tables."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from tensor_layouts import Layout, Swizzle, atoms_nv

from warptile.cli.isa import command
from warptile.isa import wgmma
from warptile.isa.numerics import FLOAT8, group_accumulation
from warptile.isa.wgmma import Descriptor, accumulator_places, pattern


@pytest.mark.parametrize("n", wgmma.EVERY_EIGHT)
def test_accumulators_lie_where_the_library_has_them(n):
    atom = atoms_nv.gmma_c_layout(n)
    places = accumulator_places(n, 32)
    assert places.shape == (128, n // 2, 1)
    for lane, register in np.ndindex(128, n // 2):
        row, column = divmod(int(places[lane, register, 0]), n)
        assert row + 64 * column == atom(lane, register)
    halves = accumulator_places(n, 16)
    assert halves.shape == (128, n // 4, 2)
    assert (halves.reshape(128, -1) == places.reshape(128, -1)).all()
    assert (accumulator_places(n, 32, 1) == places[:32]).all()


# The canonical layouts of the PTX ISA ("Strides", "Canonical Layouts"), in chunks of 16 bytes: rows (or MN) and k.
def canonical(swizzle, transposed, rows, chunks_along_k, k, leading, stride):
    wide = max(swizzle // 16, 1)
    if not transposed:
        if not swizzle:
            return Layout(((8, -(-rows // 8)), chunks_along_k), ((1, stride), leading))
        return Layout(((8, -(-rows // 8)), chunks_along_k), ((wide, stride), 1))
    if not swizzle:
        return Layout((-(-rows // 8), (8, k // 8)), (stride, (1, leading)))
    return Layout(((wide, -(-rows // (8 * wide))), (8, k // 8)), ((1, leading), (wide, stride)))


@pytest.mark.parametrize("rows", [8, 24, 64, 256])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("start", [1024, 1024 + 32])
def test_every_chunk_lies_where_the_canonical_layout_has_it(rows, swizzle, transposed, start):
    if start % 1024 and (transposed or swizzle == 32):
        pytest.skip("a step along k is one of 32 bytes inside wider rows only")
    leading, stride = 4096, 8192 + 1024 * (rows == 64)
    layout = canonical(swizzle, transposed, rows, 2, 16, leading // 16, stride // 16)
    permute = Swizzle(max(swizzle // 32, 1).bit_length() - (swizzle == 0) if swizzle else 0, 0, 3)
    found = pattern(rows, 16, 16, swizzle, transposed=transposed).addresses(
        np.array([start]), np.array([leading]), np.array([stride])
    )[0]
    assert found.shape == ((16, rows // 8) if transposed else (rows, 2))
    for place in np.ndindex(found.shape):
        chunk = place[::-1] if transposed else place
        linear = start // 16 + layout(*chunk)
        assert found[place] == 16 * (permute(linear) if swizzle else linear), place


def test_rows_of_128_bytes_as_a_worked_example():
    """f16, 128 bytes: row 3's second chunk is the third of its line; the second step of k starts 32 bytes later."""
    rows = pattern(64, 16, 16, 128)
    found = rows.addresses(np.array([0, 32]), np.array([16, 16]), np.array([1024, 1024]))
    assert found[0, 3].tolist() == [3 * 128 + 3 * 16, 3 * 128 + 2 * 16]
    assert found[1, 3].tolist() == [3 * 128 + 1 * 16, 3 * 128]
    assert found[0, 9].tolist() == [1024 + 128 + 16, 1024 + 128]
    assert (pattern(16, 16, 16, 128, first=48).addresses(*np.array([[0], [16], [1024]])) == found[:1, 48:]).all()


def test_permutation_counts_lines_from_the_base_offset():
    """A panel that starts 3 lines behind a multiple of 1024: with base offset 3 its first row is not permuted."""
    rows, start = pattern(64, 16, 16, 128), np.array([3 * 128])
    plain, based = (rows.addresses(start, np.array([16]), np.array([1024]), np.array([offset])) for offset in (0, 3))
    assert plain[0, 0].tolist() == [3 * 128 + 3 * 16, 3 * 128 + 2 * 16]
    assert based[0, 0].tolist() == [3 * 128, 3 * 128 + 16]
    assert based[0, 1].tolist() == [4 * 128 + 16, 4 * 128]


def test_rows_that_are_longer_than_what_is_permuted():
    """64 bytes along k in rows of 32: the second half a leading offset behind the first."""
    found = pattern(16, 32, 16, 32).addresses(np.array([0]), np.array([1024]), np.array([256]))
    assert found[0, 0].tolist() == [0, 16, 1024, 1040]
    assert found[0, 4].tolist() == [144, 128, 1168, 1152]
    assert found[0, 9].tolist() == [288, 304, 1312, 1328]


def test_descriptors():
    """Address >> 4, stride 64 (1024 bytes), bits 62 and 63 = 1: as kernels build them for rows of 128 bytes."""
    bits = 1 << 62 | 64 << 32 | 1 << 16 | (0x2400 >> 4)
    found = Descriptor.decode(bits)
    assert found == Descriptor(start=0x2400, leading=16, stride=1024, swizzle=128)
    assert found.encode() == bits
    assert Descriptor.decode(bits + 2).start == 0x2420
    assert Descriptor.decode(3 << 62 | 5 << 49) == Descriptor(0, 0, 0, 5, 32)
    assert [Descriptor.decode(i << 62).swizzle for i in range(4)] == [0, 128, 64, 32]
    with pytest.raises(ValueError, match="multiple of 16"):
        Descriptor(8, 0, 0).encode()
    with pytest.raises(ValueError, match="eight lines"):
        Descriptor(0, 0, 0, 8).encode()


def test_shapes_are_those_of_the_isa():
    """PTX ISA, wgmma.mma_async: n from 8 to 256 by 8; for integers and bits fewer."""
    by_type = {}
    for (name, element, sparse), shape in wgmma.shapes().items():
        by_type.setdefault((element, sparse), []).append((name, shape))
    assert {key: (len(names), names[0][1].k) for key, names in by_type.items()} == {
        ("f16", False): (32, 16), ("f16", True): (32, 32), ("bf16", False): (32, 16), ("bf16", True): (32, 32),
        ("tf32", False): (32, 8), ("tf32", True): (32, 16), ("e4m3", False): (32, 32), ("e4m3", True): (32, 64),
        ("e5m2", False): (32, 32), ("e5m2", True): (32, 64), ("s8", False): (18, 32), ("s8", True): (18, 64),
        ("u8", False): (18, 32), ("u8", True): (18, 64), ("b1", False): (18, 256),
    }  # fmt: skip
    assert wgmma.find("m64n40k16", "f16", "f16").n == 40
    assert wgmma.find("m64n40k32", "s8", "s8") is None
    assert wgmma.find("m64n48k32", "s8", "u8").registers("s32") == 24
    assert wgmma.find("m64n48k32", "s8", "e4m3") is None
    assert wgmma.find("m64n256k32", "e4m3", "e5m2").registers("f16") == 64
    assert wgmma.find("m64n8k64", "u8", "u8", sparse=True).flops == 2 * 16 * 8 * 32
    for shape in set(wgmma.shapes().values()):
        fragment = shape.fragment()
        assert (fragment.rows, fragment.columns, fragment.registers) == (16, shape.stored, 4)
    with pytest.raises(ValueError, match="no n of 12"):
        wgmma.GroupShape(wgmma.FAMILIES[0], 12)


def test_operands_that_do_not_exist():
    with pytest.raises(ValueError, match="16 bits can be MN-major"):
        pattern(64, 32, 8, 128, transposed=True)


@pytest.mark.parametrize("family", wgmma.FAMILIES, ids=lambda family: family.types[0])
def test_one_step_adds_a_whole_instruction(family):
    if family.types[0] in ("s8", "b1"):
        return
    model = group_accumulation(family.types[0])
    assert model.terms == family.k
    assert (model.fraction_bits, model.lost_bits) == ((13, 10) if family.types[0] in FLOAT8 else (25, 0))


def test_names_and_opcodes():
    names = wgmma.by_name()
    shape, types = names["wgmma.m64n128k32.f16.e4m3.e5m2"]
    assert shape.opcode(types) == "wgmma.mma_async.sync.aligned.m64n128k32.f16.e4m3.e5m2"
    shape, types = names["wgmma.sp.m64n48k64.s32.s8"]
    assert shape.opcode(types) == "wgmma.mma_async.sp.sync.aligned.m64n48k64.s32.s8.s8"
    shape, types = names["wgmma.m64n8k256.s32.b1"]
    assert shape.opcode(types).endswith("m64n8k256.s32.b1.b1.and.popc")
    assert len(names) == 2 * (64 + 32 + 32 + 32 * 8 + 18 * 4) + 18
    with pytest.raises(ValueError, match="does not multiply"):
        shape.opcode(("f32", "b1", "b1"))


def isa(*arguments):
    result = CliRunner(env={"COLUMNS": "120"}).invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_lists_and_draws_them():
    listed = isa("wgmma")
    assert "wgmma.m64nNk16" in listed
    assert "wgmma.m64nNk256" in listed
    assert "k256" not in isa("wgmma.sp")
    assert len(json.loads(isa("wgmma", "--json"))["instructions"]) + len(
        json.loads(isa("wgmma.sp", "--json"))["instructions"]
    ) == len(wgmma.by_name())
    drawn = isa("wgmma.m64n128k16.f32.f16")
    assert "A in registers: 16 x 16 of f16" in drawn
    assert "64 in all" in drawn
    facts = json.loads(isa("wgmma.m64n128k16.f32.f16", "--json"))
    assert facts["registers"] == {"d": 64, "a": 4}
    for lane, register in np.ndindex(32, 4):
        assert facts["fragments"]["d"]["lanes"][lane][register] == [
            list(divmod(int(accumulator_places(8, 32)[lane, register, 0]), 8))
        ]
