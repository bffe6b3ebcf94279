"""`warptile isa`: tables, drawings, one JSON document, and what it says to names that are none."""

import json
import re

import pytest

from warptile.cli import isa
from warptile.cli.main import run
from warptile.isa import forms, machine_code
from warptile.isa.catalogue import FORMS, assembled, by_name, multiplications
from warptile.isa.drawing import MAX_WIDTH, draw, draw_metadata
from warptile.isa.summary import cell, rows


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def output(capsys, *arguments, code=0):
    assert run(["isa", *arguments]) == code
    return capsys.readouterr()


def line_of(text, start):
    return next(line.split() for line in text.splitlines() if line.split()[: len(start)] == start)


def test_the_table_in_short(capsys):
    text = output(capsys).out
    assert line_of(text, ["mma.m16n8k16", "f16", "f32"])[3:] == ["–", *["HMMA"] * 6]
    assert line_of(text, ["mma.m16n8k256.xor"])[3:] == ["–", *["BMMA"] * 3, "2", "BMMA*", *["8", "IMMA*"] * 2]
    assert line_of(text, ["wmma.m8n8k4", "f64"])[3:] == ["–", *["DMMA"] * 6]
    assert machine_code.table().compiler in text


def test_a_beginning_of_names_lists_those(capsys):
    text = output(capsys, "mma.sp.m16n8k64").out
    assert "mma.sp.m16n8k64" in text
    assert "mma.sp.m16n8k32" not in text
    assert "wmma" not in text
    assert "mma.m16n8k16 " in output(capsys, "mma").out


def test_one_architecture_shows_its_machine_code(capsys):
    text = output(capsys, "mma.m16n8k256", "--arch", "sm_90a").out
    assert line_of(text, ["mma.m16n8k256.s32.b1.and"])[1:] == ["native", "BMMA.168256.AND.POPC"]
    assert line_of(text, ["mma.m16n8k256.s32.b1.xor"])[1:4] == ["emulated", "2", "BMMA.168256.AND.POPC"]


def test_every_instruction_is_in_some_row():
    table = machine_code.table()
    summary = rows(table, assembled())
    known = {each.name: each for each in assembled()}
    assert sorted(name for row in summary for name in row.names) == sorted(known)
    for row in summary:
        for name in row.names:
            assert row.cells == tuple(cell(table.of(arch, name)) for arch in machine_code.ARCHITECTURES)
            assert set(known[name].types[1:3]) <= set(row.operands.split(", "))
    (row,) = [row for row in summary if row.instruction == "wgmma.sp.m64nNk64" and row.accumulators == "f16"]
    assert (row.operands, len(row.names)) == ("e4m3, e5m2", 4)


def cells_of(text, title):
    """The lanes and registers of the drawing below a title, row by row."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    found = []
    for line in lines[start + 2 :]:
        if not re.match(r"\s*[\d-]+\s+\d+ [a-z]", line):
            break
        found.append([(int(lane), name) for lane, name in re.findall(r"(\d+) ([a-z]+\d*)(?=\s|$)", line)])
    return found


def test_the_drawing_says_who_holds_what(capsys):
    text = output(capsys, "mma.m16n8k16.f32.f16").out
    fragment = by_name()["mma.m16n8k16.f32.f16"].fragment
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in text
    a, b, c = (cells_of(text, title) for title in ("A: 16 x 16", "B: 16 x 8", "C and D: 16 x 8"))
    assert [len(a), len(a[0]), len(b), len(b[0]), len(c), len(c[0])] == [16, 8, 8, 8, 16, 8]
    for drawn, matrix, row_span, column_span in ((a, "a", 1, 2), (b, "b", 2, 1), (c, "c", 1, 1)):
        for row, cells in enumerate(drawn):
            for column, (lane, register) in enumerate(cells):
                assert register[0] == matrix
                place = fragment(matrix).place(lane, int(register[1:]), 0)
                assert place == (row * row_span, column * column_span)


def test_metadata_is_drawn_beside_a_compressed_matrix(capsys):
    text = output(capsys, "mma.sp.m16n8k32.f32.bf16").out
    drawn = cells_of(text, "metadata")
    assert len(drawn) == 16
    assert drawn[3] == [(12, "lo"), (13, "lo")]
    assert drawn[11] == [(12, "hi"), (13, "hi")]
    assert "4 0+1, 8 0+2, 9 1+2, C 0+3, D 1+3, E 2+3" in text
    assert "stored half" in text


def test_matrix_moves_are_drawn(capsys):
    drawn = cells_of(output(capsys, "ldmatrix.x4").out, "4 matrices")
    assert len(drawn) == 32
    assert drawn[9] == [(4, "r1"), (5, "r1"), (6, "r1"), (7, "r1")]
    crossed = cells_of(output(capsys, "ldmatrix.x4.trans").out, "4 matrices")
    assert len(crossed) == 16
    assert crossed[4] == [(4 * lane, "r1") for lane in range(8)]
    assert "since sm_90" in output(capsys, "stmatrix.x2").out
    assert "the result has them" in output(capsys, "movmatrix.trans").out


@pytest.mark.parametrize("each", multiplications(), ids=lambda each: each.name)
def test_every_drawing_is_whole_and_fits(each):
    for matrix in "abc":
        layout = each.fragment(matrix)
        drawing = draw(matrix, matrix, layout, ("rows", "columns"))
        drawn = [(c.lane, c.register) for row in drawing.cells for c in row]
        assert len(set(drawn)) == len(drawn) == 32 * len(layout.distinct)
        assert len({len(row) for row in drawing.cells}) == 1
    if each.family == "mma.sp":
        assert len(draw_metadata(each.shape).cells) == 16


def test_drawings_of_every_family_stay_within_100_columns(capsys):
    for name in ("mma.m16n8k16.f64.f64", "mma.m8n8k4.f32.f16", "mma.m16n8k256.s32.b1.and", "wmma.m8n32k16.f32.f16",
                 "wmma.m32n8k16.s32.s8", "mma.sp.m16n8k128.s32.s4", "ldmatrix.x4"):  # fmt: skip
        assert max(map(len, output(capsys, name).out.splitlines())) <= MAX_WIDTH, name
    assert "drawn transposed" in output(capsys, "wmma.m8n32k16.f32.f16").out
    assert "copies" in output(capsys, "wmma.m16n16k16.f32.f16").out


def test_json_is_one_document(capsys):
    listed = json.loads(output(capsys, "--json").out)
    assert listed["schema"] == "warptile.isa/1"
    assert len(listed["instructions"]) == len(assembled())
    assert [form["name"] for form in listed["forms"]] == [form.name for form in FORMS]
    found = next(e for e in listed["instructions"] if e["name"] == "mma.m16n8k64.s32.u4")
    assert found["outcomes"]["sm_90a"]["tensor"] == {"IMMA.16832.U8.U8": 2}
    assert found["outcomes"]["sm_75"]["status"] == "refused"
    assert found["types"] == {"d": "s32", "a": "u4", "b": "u4", "c": "s32"}
    one = json.loads(output(capsys, "mma.m16n8k16.f32.f16", "--json", "--arch", "sm_80").out)
    assert list(one["outcomes"]) == ["sm_80"]
    assert one["fragments"]["a"]["lanes"][5][3] == [[9, 10], [9, 11]]
    moved = json.loads(output(capsys, "ldmatrix.x1.trans", "--json").out)
    assert moved["fragments"]["r"]["lanes"][5][0] == [[2, 1], [3, 1]]


def test_the_fragments_of_an_architecture_are_drawn(capsys):
    # Integer accumulators of m8n32k16 lie otherwise on Turing.
    new, old = (
        json.loads(output(capsys, "wmma.m8n32k16.s32.s8", "--json", "--arch", arch).out)["fragments"]["c"]["lanes"]
        for arch in ("sm_90a", "sm_75")
    )
    assert new != old


def test_copies_and_synchronisation_are_listed_with_what_the_hardware_calls_them(capsys):
    everything = " ".join(output(capsys).out.split())
    for word in ("UBLKCP.S.G", "UTMALDG.5D", "UTMASTG.2D", "UTMAREDG", "SYNCS.PHASECHK.TRANS64.TRYWAIT", "USETMAXREG",
                 "FENCE.VIEW.ASYNC", "ELECT", "STSM", "UCGABAR_ARV", "HGMMA", "QGMMA"):  # fmt: skip
        assert word in everything
    family = output(capsys, "tensor-map").out
    assert "prefetch.tensormap" in family
    assert "UTMACCTL.PF" in family
    assert "mbarrier" not in family
    copies = output(capsys, "cp.async.bulk").out
    assert "UBLKCP.G.S" in copies
    assert "UTMALDG" in copies
    assert "mbarrier.init" not in copies
    one = output(capsys, "setmaxnreg.inc").out
    assert "multiples of 8" in one
    assert re.search(r"sm_90 +Instruction 'setmaxnreg.inc' not supported", one)
    assert re.search(r"sm_90a +USETMAXREG\.TRY_ALLOC\.CTAPOOL", one)
    facts = json.loads(output(capsys, "mbarrier", "--json").out)["forms"]
    assert {form["family"] for form in facts} == {"mbarrier"}
    assert facts[0]["outcomes"]["sm_80"] == {"machine": ["STS.64"], "reason": None}


def test_a_form_of_every_family_is_found_by_its_whole_name(capsys):
    for form in {form.family: form for form in FORMS}.values():
        assert form.does in " ".join(output(capsys, form.name).out.split())
        assert str(forms.table().found["sm_90a"][form.name]) in output(capsys, form.name).out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mma.m16n8k16.f32.fp16", "mma.m16n8k16.f32.f16"),
        ("mma.sp.m16n8k32.f32.f1", "mma.sp.m16n8k32.f32.f16"),
        ("ldmatrix.x3", "ldmatrix.x4"),
        ("mbarrier.try_wait.party", "mbarrier.try_wait.parity"),
        ("quux", "`warptile isa` lists them all"),
    ],
)
def test_unknown_names_are_a_usage_error_with_near_ones(capsys, name, said):
    message = output(capsys, name, code=2).err
    assert repr(name) in message
    assert said in " ".join(message.split())


def test_colours_are_for_terminals_that_want_them(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[38;5;" in output(capsys, "mma.m16n8k8.f32.tf32").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "38;" not in output(capsys, "mma.m16n8k8.f32.tf32").out


def test_each_lane_has_a_colour_of_its_own():
    assert len({colour.triplet for colour in isa.LANE_COLOURS}) == 32
