"""``ldmatrix``, ``stmatrix`` and ``movmatrix`` on the emulator, against the tables of the PTX ISA written as loops."""

import numpy as np
import pytest

from warptile.emulator import emulate
from warptile.errors import DivergentCollective, IllegalAddress, MisalignedAccess, UninitializedRead, UnknownInstruction
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

WARPS = 8
ROWS = 32 * WARPS
TILE_BYTES = ROWS * 16


def run(body, *, rows=None, arch="sm_90a"):
    """`WARPS` warps. Shared `tile` holds the rows of 16 bytes given; %place is where this lane's row is in it.

    A lane's words %r0 to %r3 (its four random numbers at first) are returned, with what shared memory holds at last.
    """
    random = np.random.default_rng(7)
    tile = random.integers(0, 256, (ROWS, 16), dtype=np.uint8)
    places = (np.arange(ROWS) if rows is None else rows).astype(np.uint32) * 16
    words = random.integers(0, 2**32, (ROWS, 4), dtype=np.uint32)
    out = words.copy()
    text = f"""
.version 9.0
.target {arch}
.address_size 64
.shared .align 128 .b8 tile[{TILE_BYTES}];
.entry k(.param .u64 rows, .param .u64 places, .param .u64 words) {{
.reg .b32 %r<20>; .reg .b32 %place, %lane, %own; .reg .b64 %rd<9>, %generic; .reg .pred %p;
ld.param.u64 %rd1, [rows]; ld.param.u64 %rd2, [places]; ld.param.u64 %rd3, [words];
mov.u32 %lane, %tid.x; mul.wide.u32 %rd4, %lane, 16; mul.wide.u32 %rd5, %lane, 4;
add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd5; add.u64 %rd3, %rd3, %rd4;
mov.u32 %own, tile; mad.lo.u32 %own, %lane, 16, %own;
ld.global.v4.b32 {{%r10,%r11,%r12,%r13}}, [%rd1]; st.shared.v4.b32 [%own], {{%r10,%r11,%r12,%r13}};
ld.global.b32 %place, [%rd2]; mov.u32 %r14, tile; add.u32 %place, %place, %r14;
cvt.u64.u32 %generic, %place; cvta.shared.u64 %generic, %generic;
ld.global.v4.b32 {{%r0,%r1,%r2,%r3}}, [%rd3];
bar.sync 0;
{body}
bar.sync 0;
st.global.v4.b32 [%rd3], {{%r0,%r1,%r2,%r3}};
ld.shared.v4.b32 {{%r10,%r11,%r12,%r13}}, [%own]; st.global.v4.b32 [%rd1], {{%r10,%r11,%r12,%r13}};
ret;
}}"""
    spec = LaunchSpec("k", (1, 1, 1), (ROWS, 1, 1), (Pointer("rows"), Pointer("places"), Pointer("words")))
    held = tile.copy()
    report = emulate(
        parse(text), spec, {"rows": held, "places": places, "words": out},
        accesses={"words": Access(writes=True), "rows": Access(writes=True)}, arch=arch,
    )  # fmt: skip
    return tile, words, out, held, report


def element_of(lane, half, transposed):
    """Row and column of one 16-bit half of a lane's register."""
    row, column = lane // 4, 2 * (lane % 4) + half
    return (column, row) if transposed else (row, column)


def shuffled():
    return np.random.default_rng(3).permutation(ROWS)


SPACES = [".shared", ".shared::cta", ""]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_ldmatrix(matrices, transposed, space):
    registers = ",".join(f"%r{i}" for i in range(matrices))
    trans, place = ".trans" if transposed else "", "%place" if space else "%generic"
    rows = shuffled()
    body = f"ldmatrix.sync.aligned.m8n8.x{matrices}{trans}{space}.b16 {{{registers}}}, [{place}];"
    tile, words, out, held, report = run(body, rows=rows)
    expected = words.copy()
    halves = expected.view(np.uint16).reshape(ROWS, 4, 2)
    for warp, lane, matrix, half in np.ndindex(WARPS, 32, matrices, 2):
        row, column = element_of(lane, half, transposed)
        address = rows[32 * warp + 8 * matrix + row]
        halves[32 * warp + lane, matrix, half] = tile[address].view(np.uint16)[column]
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(held, tile)
    # Beside it, a vector load of four passes a warp. Eight rows one after the other are 128 bytes: no conflict there.
    assert report.counters["shared_load_requests"] == 2 * WARPS
    assert report.counters["shared_load_wavefronts_ideal"] == (4 + matrices) * WARPS


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_stmatrix(matrices, transposed, space):
    registers = ",".join(f"%r{i}" for i in range(matrices))
    trans, place = ".trans" if transposed else "", "%place" if space else "%generic"
    rows = shuffled()
    body = f"stmatrix.sync.aligned.m8n8.x{matrices}{trans}{space}.b16 [{place}], {{{registers}}};"
    tile, words, out, held, report = run(body, rows=rows)
    expected = tile.copy()
    halves = words.view(np.uint16).reshape(ROWS, 4, 2)
    for warp, lane, matrix, half in np.ndindex(WARPS, 32, matrices, 2):
        row, column = element_of(lane, half, transposed)
        address = rows[32 * warp + 8 * matrix + row]
        expected[address].view(np.uint16)[column] = halves[32 * warp + lane, matrix, half]
    np.testing.assert_array_equal(held, expected)
    np.testing.assert_array_equal(out, words)
    assert report.counters["shared_store_requests"] == 2 * WARPS
    assert report.counters["shared_store_wavefronts_ideal"] == (4 + matrices) * WARPS


def test_movmatrix():
    _, words, out, _, _ = run("movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;")
    given = words[:, 1].reshape(WARPS, 32)
    found = out[:, 2].reshape(WARPS, 32)
    for warp, lane, half in np.ndindex(WARPS, 32, 2):
        column, row = element_of(lane, half, False)
        source = given[warp, 4 * row + column // 2] >> (16 * (column % 2)) & 0xFFFF
        assert found[warp, lane] >> (16 * half) & 0xFFFF == source
    np.testing.assert_array_equal(out[:, [0, 1, 3]], words[:, [0, 1, 3]])


def test_a_register_may_be_source_and_destination():
    _, words, out, _, _ = run(
        "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0; movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0;"
    )
    np.testing.assert_array_equal(out, words)


@pytest.mark.parametrize("distance", [1, 2, 4, 8])
@pytest.mark.parametrize("instruction", ["ldmatrix", "stmatrix"])
def test_conflicts_go_by_the_distance_of_rows(instruction, distance):
    # The first warp's rows are `distance` * 16 bytes apart: the eight of a matrix meet in groups of `distance`.
    rows = np.arange(ROWS)
    rows[:32] *= distance
    four, place = "{%r0,%r1,%r2,%r3}", "[%place]"
    operands = f"{four}, {place}" if instruction == "ldmatrix" else f"{place}, {four}"
    first_warp = "setp.gt.u32 %p, %lane, 31; @%p bra away;"
    *_, report = run(f"{first_warp} {instruction}.sync.aligned.m8n8.x4.shared.b16 {operands}; away:", rows=rows)
    kind = "load" if instruction == "ldmatrix" else "store"
    beside = 4 * WARPS  # one vector load or store by everybody
    assert report.counters[f"shared_{kind}_wavefronts"] == beside + 4 * distance
    assert report.counters[f"shared_{kind}_wavefronts_ideal"] == beside + 4


ONE = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, "


def test_only_the_lanes_that_address_a_row_need_an_address():
    body = "and.b32 %r15, %lane, 31; setp.gt.u32 %p, %r15, 7; @%p mov.u32 %place, 0xdeadbeef;"
    tile, _, out, _, _ = run(f"{body} {ONE}[%place];")
    np.testing.assert_array_equal(out[:32, 0], tile[:8].view(np.uint32).ravel())


def test_memory_errors_are_named():
    with pytest.raises(MisalignedAccess, match="not a multiple of 16 bytes"):
        run(ONE + "[%place+8];")
    with pytest.raises(IllegalAddress, match="of shared memory"):
        run(ONE + f"[%place+{TILE_BYTES}];")
    with pytest.raises(IllegalAddress, match=r"thread \(0, .* accesses 0x7f\w+, which is not in shared memory"):
        run(ONE.replace(".shared", "") + "[%rd1];")
    with pytest.raises(IllegalAddress, match="which is not in shared memory"):
        run("stmatrix.sync.aligned.m8n8.x1.b16 [%rd1], {%r0};")
    with pytest.raises(MisalignedAccess, match="not a multiple of 16 bytes"):
        run("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%place+4], {%r0};")
    with pytest.raises(UninitializedRead, match="nothing has written"):
        run(".shared .align 16 .b8 other[512]; mov.u32 %place, other; " + ONE + "[%place];")


@pytest.mark.parametrize(
    "instruction",
    [
        ONE + "[%place];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%place], {%r0};",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;",
    ],
)
def test_all_lanes_of_a_warp_take_part(instruction):
    with pytest.raises(DivergentCollective, match="not all lanes of a warp"):
        run(f"setp.eq.u32 %p, %lane, 5; @%p bra away; {instruction} away:")


@pytest.mark.parametrize(
    ("text", "arch", "message"),
    [
        (ONE.replace("m8n8", "m16n16") + "[%place];", "sm_90a", "needs one of .m8n8"),
        (ONE.replace(".b16", ".b8") + "[%place];", "sm_90a", "needs one of .b16"),
        (ONE.replace("x1", "x3") + "[%place];", "sm_90a", "needs one of .x1, .x2, .x4"),
        (ONE.replace("x1", "x2") + "[%place];", "sm_90a", "moves 2 registers of each lane where 1 are given"),
        (ONE.replace(".shared", ".global") + "[%rd1];", "sm_90a", "unknown modifier .global"),
        (ONE.replace(".aligned", "") + "[%place];", "sm_90a", "needs one of .aligned"),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%place], {%r0};", "sm_89", "stmatrix needs sm_90"),
        ("movmatrix.sync.aligned.m8n8.b16 %r0, %r1;", "sm_90a", "needs one of .trans"),
    ],
)
def test_what_does_not_exist_is_named(text, arch, message):
    with pytest.raises(UnknownInstruction, match=message):
        run(text, arch=arch)
