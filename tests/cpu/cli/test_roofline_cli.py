"""`warptile roofline`: charts and tables in 80 columns, one JSON document, and what it says to odd requests."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from recorded import UNMEASURED
from warptile import measured
from warptile.cli._roofline_views import duration, quantity, short
from warptile.cli.main import run
from warptile.cli.roofline import check_modes
from warptile.roofline.published_gpus import GPUS, LEVELS
from warptile.roofline.source_texts import readings
from warptile.rungs import RUNGS

RUNGS_ALONE = ("--rung", "wgmma-final", "--rung", "simt-naive")


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def output(capsys, *arguments, code=0):
    assert run(["roofline", *arguments]) == code
    return capsys.readouterr()


def row_of(text, name):
    return next(line.split() for line in text.splitlines() if name in line.split())


@pytest.mark.parametrize("arguments", [
    (), ("--level", "l2"), ("--level", "dram", "--ascii"), ("--gpu", "A100"), ("--gpu", "V100", "--level", "dram"),
    ("--gpu", "b200"), ("--dtype", "f16"), ("--dtype", "e4m3", "--size", "8192"), ("--size", "16384"), RUNGS_ALONE,
    ("--list",), ("--list", "--gpu", "T4"), ("--derive",), ("-m", "4096", "-n", "4096", "-k", "4096"),
    ("-m", "1", "-n", "1", "-k", "1", "--dtype", "int8"), ("--help",),
], ids=" ".join)  # fmt: skip
def test_everything_fits_80_columns(capsys, arguments):
    text = output(capsys, *arguments).out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "\x1b" not in text


def test_a_narrower_terminal_says_what_it_leaves_out(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = output(capsys, *RUNGS_ALONE).out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 60
    assert "Not shown in this width: type, speed;" in text


def test_the_table_has_the_point_of_each_rung(capsys):
    text = output(capsys).out
    assert all(name in text for name in RUNGS if name not in UNMEASURED)
    row = row_of(text, "wgmma-final")
    assert row[0] == "z"
    assert row[2:6] == ["31.3", "83.6", "715", "L2"]
    assert row[-1] == "83%"
    assert row_of(text, "wmma-naive")[2:6] == ["1.00", "~15.9", "~480", "shared"]
    assert "Above its roof: wgmma-pingpong (105%); docs/roofline.md says why." in text


def test_ascii_is_asked_for_or_follows_from_the_encoding(capsys):
    text = output(capsys, *RUNGS_ALONE, "--ascii").out
    assert text.split("roof L1/shared")[0].isascii()
    command = [sys.executable, "-m", "warptile.cli.main", "roofline", *RUNGS_ALONE]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    told = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert told.stdout.isascii()
    assert b"wgmma-final" in told.stdout


def test_another_gpu_shows_roofs_and_no_speeds(capsys):
    text = output(capsys, "--gpu", "A100", "--rung", "mma-final", "--rung", "simt-naive").out
    assert "below the roofs of the A100" in text
    assert row_of(text, "mma-final")[2:] == ["f16", "22.1", "83.6", "~772", "tensor", "312"]
    assert "Nothing was recorded on the A100" in text
    assert "speed" not in text
    assert "The V100 is older than what warptile compiles for" in output(capsys, "--gpu", "V100").out
    assert "No source gives the L2 bandwidth of the H100" in output(capsys, "--gpu", "H100").out.replace("\n", " ")


def test_one_document_for_machines(capsys):
    document = json.loads(output(capsys, "--json").out)
    assert document["schema"] == "warptile.roofline/1"
    assert document["gpu"]["figures"]["DRAM"]["value"] == 4.8e12
    assert "H200" in document["gpu"]["figures"]["DRAM"]["source"]
    assert [each["rung"] for each in document["rungs"]] == [name for name in RUNGS if name not in UNMEASURED]
    (final,) = (each for each in document["rungs"] if each["rung"] == "wgmma-final")
    assert final["limited_by"] == min(final["roofs_tflops"], key=final["roofs_tflops"].get) == "l2"
    assert final["share"] == pytest.approx(final["recorded_tflops"] / final["attainable_tflops"])
    assert final["flop_per_byte"]["l2"] == pytest.approx(83.6, abs=0.05)
    other = json.loads(output(capsys, "--gpu", "A100", "--json").out)
    assert {each["recorded_tflops"] for each in other["rungs"]} == {None}
    assert {each["record"] for each in other["rungs"]} == {None}


def test_the_list_names_every_gpu_and_every_source(capsys):
    text = output(capsys, "--list").out.replace("\n", " ")
    for gpu in GPUS.values():
        assert gpu.product in text
        for figure in gpu.figures.values():
            assert figure.source.title.split(",")[0] in text
    document = json.loads(output(capsys, "--list", "--json").out)
    assert [each["name"] for each in document["gpus"]] == list(GPUS)
    assert [each["name"] for each in json.loads(output(capsys, "--list", "--gpu", "t4", "--json").out)["gpus"]] == [
        "T4"
    ]


def test_the_derivation_shows_every_reading(capsys):
    text = output(capsys, "--derive").out
    assert "8192 / (8 loads x 8" in text
    assert text.count(" yes") == sum(each.agrees for each in readings())
    document = json.loads(output(capsys, "--derive", "--json").out)
    assert [each["value"] for each in document["readings"]] == [each.value for each in readings()]


def test_a_problem_of_ones_own(capsys):
    text = output(capsys, "-m", "1", "-n", "8192", "-k", "8192", "--dtype", "bf16").out
    assert "T4" not in text  # has no bf16
    assert row_of(text, "H200")[:5] == ["H200", "990", "29.6", "101", "206"]
    assert row_of(text, "H200")[5] == "DRAM"
    assert "1.00 FLOP per byte" in text
    document = json.loads(output(capsys, "-m", "4096", "-n", "4096", "-k", "4096", "--gpu", "T4", "--json").out)
    assert document["bytes"] == 3 * 2 * 4096**2
    assert document["gpus"][0]["milliseconds"] == pytest.approx(1e3 * 2 * 4096**3 / 65e12)
    assert document["gpus"][0]["limited_by"] == "tensor"


def test_a_problem_in_l2_is_said_to_be_one(capsys):
    assert "Where L2 holds the operands" in output(capsys, "-m", "512", "-n", "512", "-k", "512").out
    assert "Where L2 holds the operands" not in output(capsys, "-m", "9999", "-n", "9999", "-k", "9999").out


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (("--gpu", "H10"), 2, "got 'H10'; did you mean H100?"),
    (("--gpu", "RTX"), 2, "got 'RTX'; it takes V100, T4, A100, L40S, H100, H200, B200"),
    (("--rung", "wgma-final"), 2, "did you mean wgmma-final"),
    (("--level", "hbm"), 2, "it takes shared, l2, dram"),
    (("--dtype", "f19"), 2, "did you mean"),
    (("--size", "4097"), 4, "recorded are 1024, 2048, 4096, 8192, 16384, as in warptile roofline --size 4096"),
    (("--size", "0"), 2, "x>=1"),
    (("--dtype", "int8"), 4, "rungs were recorded in bfloat16, float16, float32, float8_e4m3"),
    (("--gpu", "T4", "--dtype", "bf16"), 4, "no peak of the T4 is published"),
    (("--gpu", "T4", "--rung", "wgmma-final"), 4, "which is sm_75 and does not run wgmma-final; try --gpu H200"),
    (("--gpu", "H100", "--level", "l2"), 4, "there is shared and dram, such as --level dram"),
    (("--rung", "wgmma-final", "--size", "16384"), 4, "no record in the usual type at 16384^3; try --size 8192"),
    (("--rung", "wgmma-final", "--dtype", "e4m3"), 4, "leave out --dtype"),
    (("-m", "4"), 2, "a problem needs all three, as in warptile roofline -m 4096 -n 4096 -k 4096"),
    (("-m", "4", "-n", "4", "-k", "-4"), 2, "x>=1"),
    (("-m", "4", "-n", "4", "-k", "4", "--list"), 2, "--list and -m -n -k print different things"),
    (("--list", "--derive"), 2, "print different things"),
    (("--list", "--rung", "wgmma-final"), 2, "--rung: has no meaning with --list"),
    (("-m", "4", "-n", "4", "-k", "4", "--dtype", "int4"), 2, "matmul multiplies float16"),
    (("-m", "4", "-n", "4", "-k", "4", "--dtype", "bf16", "--gpu", "T4"), 4, "no peak is published for T4"),
    (("extra",), 2, "unexpected extra argument"),
], ids=lambda each: " ".join(each) if isinstance(each, tuple) else "")  # fmt: skip
def test_odd_requests_get_an_answer_that_helps(capsys, arguments, code, said):
    text = " ".join(output(capsys, *arguments, code=code).err.split())
    assert said in text
    assert "Traceback" not in text


def test_calls_in_messages_run(capsys):
    output(capsys, "--size", "4096")
    output(capsys, "-m", "4096", "-n", "4096", "-k", "4096")
    output(capsys, "--gpu", "H100", "--level", "dram")


@pytest.mark.parametrize("level", LEVELS)
def test_a_picture_is_written(capsys, tmp_path, level):
    path = tmp_path / "roofline.svg"
    told = output(capsys, "--level", level, "--plot", str(path))
    assert f"{path}: written" in told.err
    assert "wgmma-final" in path.read_text()
    ET.fromstring(path.read_text())
    assert "there is no folder" in output(capsys, "--plot", str(tmp_path / "no" / "a.svg"), code=2).err


def test_records_are_not_needed(capsys, monkeypatch):
    """An installed package has none: everything is in the summary that ships."""
    from warptile.bench.protocol import records

    monkeypatch.setattr(records, "committed", lambda: pytest.fail("records were read"))
    output(capsys)
    assert measured.FILE.parent.name == "data"


def test_the_command_loads_no_benchmarks():
    script = "import sys; from warptile.cli.main import run; run(['roofline', '--derive']); "
    script += "print([name for name in sys.modules if name.startswith('warptile.bench')], file=sys.stderr)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stderr.strip() == "[]"


def test_modes_are_told_apart():
    extents = {"-m": 1, "-n": 2, "-k": 3}
    assert check_modes(extents, {"--list": False}, {"--rung": ()}, "float16") == (1, 2, 3)
    assert check_modes(dict.fromkeys(extents), {"--list": True}, {"--rung": ()}, None) is None


def test_figures_are_short():
    assert [short(value) for value in (None, 0.304, 9.994, 9.996, 99.94, 99.96, 1646.4)] == [
        "-", "0.30", "9.99", "10.0", "99.9", "100", "1646",
    ]  # fmt: skip
    assert [duration(value) for value in (2e-5, 0.0281, 2.05, 1234.0)] == ["20 ns", "28.1 us", "2.05 ms", "1.23 s"]
    assert [quantity(value, "B") for value in (12, 1234, 2.5e9)] == ["12 B", "1.23 kB", "2.5 GB"]
