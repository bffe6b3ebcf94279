"""Climbing the ladder: real kernels on the emulator, what a failure looks like, and the document that is printed."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios

import msgspec
import numpy as np
import pytest
from rich.console import Console

from covering import ALL, covering, few
from warptile import ladder
from warptile.arrays.array_view import packed
from warptile.cli import ladder as cli_ladder
from warptile.cli.main import run
from warptile.dtypes import DTYPES
from warptile.errors import ConflictingWrites, UnsupportedError
from warptile.ladder import CompiledResources, Ladder, PredictedTime, ProblemSize, RungResult
from warptile.rungs import RUNGS, families
from warptile.runtime import execute
from warptile.runtime.execute import EmulatorBackend

COUNTERS = {
    "warp_instructions", "tensor_instructions", "tensor_flops", "global_load_requests", "global_load_sectors",
    "global_store_sectors", "global_load_bytes", "global_store_bytes", "shared_load_wavefronts",
    "shared_load_wavefronts_ideal", "shared_store_wavefronts", "shared_store_wavefronts_ideal",
    "shared_async_copy_wavefronts", "shared_async_copy_wavefronts_ideal", "shared_load_conflict_ratio",
    "shared_store_conflict_ratio", "shared_async_copy_conflict_ratio", "barriers", "arithmetic_intensity",
}  # fmt: skip
"""Names that the command line promises."""


@pytest.fixture
def emulator(monkeypatch):
    monkeypatch.setattr(execute, "has_gpu", lambda: False)
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)


def climbed(names, size=(37, 29, 23), **options):
    return list(ladder.climb([RUNGS[name] for name in names], size, EmulatorBackend(), **options))


@pytest.mark.parametrize("family", families())
def test_a_familys_rungs_are_correct_on_a_ragged_problem(family):
    names = [name for name, rung in RUNGS.items() if rung.family == family and not rung.sparse]
    names = names if ALL else [names[0], names[-1]]  # tests/cpu/rungs has each of them
    results = climbed(names, (65, 33, 49))
    assert [result.name for result in results] == names
    for result in results:
        assert result.correct, result.failure
        assert 0 < result.error_ratio <= 1
        assert result.counters.keys() >= COUNTERS
        assert result.resources.registers > 0
        assert result.resources.spill_bytes == 0
        assert result.predicted.bound in {"dram", "l2", "shared", "tensor", "issue", "latency", "power"}
        assert (result.time_ms, result.tflops, result.of_cublas) == (None, None, None)


def test_a_sparse_rung_draws_weights_that_it_takes():
    (sparse,) = climbed(["mma-sparse"], (65, 33, 52), dtype="float16")
    assert (sparse.correct, sparse.dtype) == (True, "float16")
    (refused,) = climbed(["mma-sparse"], (65, 33, 49))
    assert (refused.unsupported, refused.correct) == (True, False)
    assert "K is 49" in refused.failure


@pytest.mark.parametrize(
    ("name", "dtype"),
    few(
        covering(
            ("mma-final", "mma-naive"),
            ("bfloat16", "tfloat32", "float64", "int8", "uint8", "int4", "uint4", "bit1", "float8_e4m3", "float8_e5m2"),
            pairs=(),
        ),
        2,
    ),
)
def test_every_type_is_reachable_through_the_mma_family(name, dtype):
    (result,) = climbed([name], (40, 24, 64), dtype=dtype)
    assert (result.dtype, result.correct) == (dtype, True), result.failure


def test_a_rung_keeps_its_own_type_when_it_does_not_take_the_one_asked_for():
    (half,) = climbed(["simt-half2"], dtype="float32")
    (naive,) = climbed(["simt-naive"], dtype="float16")
    assert (half.dtype, naive.dtype) == ("float16", "float16")
    (naive,) = climbed(["simt-naive"])
    assert naive.dtype == "float32"


def test_traffic_of_the_naive_rung_is_counted_exactly():
    m, n, k = 16, 32, 8
    (naive,) = climbed(["simt-naive"], (m, n, k), dtype="float32")
    # A warp is 32 columns of a row: at each k its lanes ask for one element of A, all the same, and for 32 of B.
    loaded = 4 * (m * n * k // 32 + m * n * k)
    assert naive.counters["global_load_bytes"] == loaded
    assert naive.counters["global_store_bytes"] == m * n * 4
    traffic = loaded + m * n * 4
    assert naive.counters["arithmetic_intensity"] == 2 * m * n * k / traffic


@pytest.mark.parametrize("dtype", few(["bit1", "int4", "uint4"], 1))
def test_types_narrower_than_a_byte_climb_too(dtype):
    results = climbed(["wmma-naive", "wmma-final"], (40, 24, 64), dtype=dtype)
    assert [(r.correct, r.dtype, r.out_dtype, r.error_ratio) for r in results] == [(True, dtype, "int32", 0.0)] * 2


def test_elements_are_packed_lowest_bits_first():
    assert packed(np.array([[1, -1, 7, -8]], np.int8), DTYPES["int4"]).tolist() == [[0xF1, 0x87]]
    assert packed(np.array([[1, 0, 0, 0, 0, 0, 1, 1]], np.uint8), DTYPES["bit1"]).tolist() == [[0b11000001]]
    wide = np.zeros((2, 3), np.int8)
    assert packed(wide, DTYPES["int8"]) is wide


class Broken(EmulatorBackend):
    """Runs a kernel, then spoils its result."""

    def __init__(self, spoil):
        super().__init__()
        self.spoil = spoil

    def emulate(self, plan, kernel, buffers, alpha, beta):
        report = super().emulate(plan, kernel, buffers, alpha, beta)
        self.spoil(buffers["D"])
        return report


def test_a_wrong_element_is_named():
    def spoil(d):
        d[3, 5] += 1

    (result,) = ladder.climb([RUNGS["simt-naive"]], (8, 8, 8), Broken(spoil))
    assert not result.correct
    assert result.error_ratio > 1
    assert result.failure.startswith("D[3, 5] is ")
    assert not result.unsupported


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_not_passed_over(value):
    (result,) = ladder.climb([RUNGS["simt-naive"]], (8, 8, 8), Broken(lambda d: d.__setitem__((0, 1), value)))
    assert (result.correct, result.error_ratio) == (False, float("inf"))
    assert "D[0, 1]" in result.failure


def test_an_error_of_one_rung_does_not_end_the_climb():
    class Refusing(EmulatorBackend):
        def emulate(self, plan, kernel, buffers, alpha, beta):
            if plan.rung.name == "simt-naive":
                raise ConflictingWrites("D[0, 0] is written by two threads")
            return super().emulate(plan, kernel, buffers, alpha, beta)

    first, second = ladder.climb([RUNGS["simt-naive"], RUNGS["simt-shared"]], (8, 8, 8), Refusing())
    assert (first.correct, first.failure) == (False, "ConflictingWrites: D[0, 0] is written by two threads")
    assert second.correct


def test_a_rung_that_the_architecture_lacks_is_not_wrong_but_not_here():
    (result,) = ladder.climb([RUNGS["wmma-async"]], (8, 8, 8), EmulatorBackend("sm_75"))
    assert (result.correct, result.unsupported, result.error_ratio) == (False, True, None)
    assert "8.0" in result.failure
    assert cli_ladder.status([result], named=True) == 4
    assert cli_ladder.status([result], named=False) == 4
    good = replace_result(result, correct=True, unsupported=False)
    assert cli_ladder.status([good, result], named=False) == 0
    assert cli_ladder.status([good, result], named=True) == 4
    assert cli_ladder.status([good, replace_result(result, unsupported=False)], named=True) == 1


def replace_result(result, **changes):
    return msgspec.structs.replace(result, **changes)


def test_an_unknown_backend_is_refused():
    class Elsewhere:
        name, arch, gpu = "elsewhere", "sm_90a", None

    with pytest.raises(UnsupportedError, match="elsewhere"):
        list(ladder.climb([RUNGS["simt-naive"]], (8, 8, 8), Elsewhere()))


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("emulator")
def test_json_is_one_document_with_every_field(capsys):
    assert (
        run(["ladder", "--rung", "simt-naive", "--rung", "simt-shared", "-m", "9", "-n", "7", "-k", "5", "--json"]) == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "warptile.ladder/1"
    assert document["backend"] == "emulator"
    assert document["problem"] == {"m": 9, "n": 7, "k": 5, "dtype": "float16"}
    assert document["environment"]["nvidia-cuda-nvrtc"]
    assert [rung["name"] for rung in document["rungs"]] == ["simt-naive", "simt-shared"]
    for rung in document["rungs"]:
        assert rung.keys() >= {
            "name", "family", "arch", "correct", "error_ratio", "config", "resources", "counters", "time_ms", "tflops",
            "of_cublas", "predicted", "measured",
        }  # fmt: skip
        assert rung["resources"].keys() == {"registers", "shared_bytes", "spill_bytes"}
        assert rung["predicted"].keys() == {"time_ms", "bound", "tflops", "arch"}
        assert rung["arch"].startswith("sm_")


@pytest.mark.usefixtures("emulator")
def test_the_table_has_a_row_for_each_rung_and_progress_goes_to_stderr(capsys):
    assert run(["ladder", "--family", "simt", "-m", "9", "-n", "7", "-k", "5"]) == 0
    text, progress = capsys.readouterr()
    count = sum(rung.family == "simt" for rung in RUNGS.values())
    assert f"{count}/{count} simt-half2\n" in progress
    assert "/4 simt" not in text
    for name, rung in RUNGS.items():
        assert (name in text) == (rung.family == "simt")
    assert "4096 x 4096 x 4096" in text


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--backend", "gpu"], 3, "no NVIDIA GPU"),
        (["--rung", "wmma-finale"], 2, "did you mean wmma-final"),
        (["--family", "cute"], 2, "it takes simt, wmma, mma, wgmma, all"),
        (["--family", "wgma"], 2, "did you mean wgmma"),
        (["--accumulate", "flot32"], 2, "did you mean float32"),
        (["--backend", "emulater"], 2, "did you mean emulator"),
        (["--family", "simt", "--rung", "wmma-final"], 2, "not of the family simt"),
        (["--dtype", "float15"], 2, "float16"),
        (["--dtype", "int32"], 2, "none of these rungs takes"),
        (["-m", "0"], 2, "x>=1"),
        (["--wings"], 2, "No such option"),
    ],
)
def test_wrong_calls_have_their_exit_codes(arguments, code, words, capsys):
    assert run(["ladder", *arguments]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


@pytest.mark.usefixtures("emulator")
def test_a_wrong_result_is_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(
        ladder._Emulator, "run", lambda self, plan, kernel: ladder._RungRun(7.5, "D[0, 0] is 1, which is not 2")
    )
    assert run(["ladder", "--rung", "simt-naive", "-m", "4", "-n", "4", "-k", "4"]) == 1
    text = capsys.readouterr().out
    assert "WRONG" in text
    assert "simt-naive: D[0, 0] is 1, which is not 2" in text


def test_interrupting_ends_with_130():
    command = [sys.executable, "-m", "warptile.cli.main", "ladder", "-m", "3000", "-n", "3000"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("WARPTILE_BACKEND", None)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    ) as started:  # fmt: skip
        try:
            assert started.stderr is not None
            assert b"no GPU" in started.stderr.readline()
            started.send_signal(signal.SIGINT)
            out, err = started.communicate(timeout=60)
        finally:
            started.kill()
    assert (started.returncode, out, err.split()) == (130, b"", [b"interrupted"])


# --- what is drawn ---------------------------------------------------------------------------------------------------


def drawn(*rungs, backend="emulator", width=200, verbose=False):
    document = Ladder(
        backend=backend,
        problem=ProblemSize(64, 32, 16, "float16"),
        environment={"gpu": "NVIDIA H200" if backend == "gpu" else None},
        rungs=rungs,
    )
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        cli_ladder.draw(console, document, {}, verbose=verbose)
    return console.export_text()


GOOD = RungResult(
    name="wmma-naive", family="wmma", idea="one warp", arch="sm_70", dtype="float16", out_dtype="float16",
    accumulator="float32", correct=True, error_ratio=0.21, config={}, resources=CompiledResources(32, 0, 0),
    counters={"global_load_bytes": 8192.0, "shared_load_wavefronts": 8.0, "shared_load_conflict_ratio": 4.0},
    predicted=PredictedTime(0.1, "l2", 33.25, "H200"),
)  # fmt: skip
RECORD = {"m": 4096, "n": 4096, "k": 4096, "tflops": 55.5, "of_cublas": 0.08, "gpu": "NVIDIA H200",
          "date": "2026-11-20", "record": "ladder-h200-1"}  # fmt: skip


def test_a_row_shows_what_was_counted_and_predicted():
    text = drawn(GOOD)
    for words in ("yes 0.21", "4.00", "8.0", "l2", "33.2", "f16"):
        assert words in text
    assert 2 * 64 * 32 * 16 / 8192 == 8.0


WIDE = replace_result(
    GOOD, name="wmma-double-buffer", idea="two sets of fragments: loads from shared memory run ahead of the products",
    error_ratio=0.99, predicted=PredictedTime(0.1, "latency", 1234.5, "H200"),
    measured={**RECORD, "tflops": 1187.6, "of_cublas": 10.25},
)  # fmt: skip


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
def test_the_table_fits_and_no_number_is_cut(width, verbose):
    text = drawn(GOOD, WIDE, width=width, verbose=verbose)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    (row,) = [line for line in text.splitlines() if line.startswith("wmma-double-buffer ")]
    figures = row.split()
    for words in ("0.99", "4.00", "latency", "1234.5", "1187.6*", "10.25x*"):
        assert words in figures
    assert ("8.0" in figures) == (width >= 100)
    assert ("██" in row) == (width >= 120)
    assert ("two sets of fragments" in text) == (verbose or width >= 160)
    assert ("FLOP/byte" in " ".join(text.partition("Not shown")[2].split())) == (width < 100)


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_terminal_too_narrow_gets_longer_lines_rather_than_cut_numbers(width):
    text = drawn(WIDE, width=width)
    (row,) = [line for line in text.splitlines() if line.startswith("wmma-double-buffer ")]
    assert {"0.99", "1187.6*"} <= set(row.split())


def test_a_column_without_a_figure_is_left_out_and_said_once():
    timed = replace_result(GOOD, counters={}, time_ms=1.0, tflops=77.7, of_cublas=0.5)
    text = drawn(timed, timed, backend="gpu")
    table, _, notes = text.partition("\n\n")
    assert "conflicts" not in table
    assert "byte" not in table
    assert notes.count("bank conflicts and FLOP/byte: not counted while kernels are timed") == 1
    assert "warptile profile" in notes


def _in_terminal(columns, environment, *options, bar=False):
    """What a terminal of so many columns shows of the ladder's table, and what goes to stderr; with ``bar`` the
    terminal is stderr's, and stdout is a pipe."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": "", **environment}
    for name in ("COLUMNS", "FORCE_COLOR", "WARPTILE_BACKEND"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "warptile.cli.main", "ladder", "--rung", "simt-shared", "-m", "9", *options]
    streams = {"stdout": subprocess.PIPE, "stderr": child} if bar else {"stdout": child, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **streams, env=environment) as started:
        os.close(child)
        seen = b""
        while True:
            try:
                seen += os.read(parent, 4096)
            except OSError:  # the terminal's other side is closed
                break
        other = (started.stdout or started.stderr).read()
    os.close(parent)
    assert started.returncode == 0, other
    return seen.decode(), other.decode()


def test_a_bar_is_drawn_on_a_terminal_and_the_document_stays_whole():
    drawn_on_stderr, document = _in_terminal(100, {"TERM": "xterm-256color"}, "--json", bar=True)
    assert [rung["name"] for rung in json.loads(document)["rungs"]] == ["simt-shared"]
    assert "simt-shared" in drawn_on_stderr
    assert "0/1" in drawn_on_stderr
    assert "━" in drawn_on_stderr


@pytest.mark.parametrize("no_color", [True, False])
def test_a_real_terminal_gets_its_own_width_and_no_colour_where_none_is_wanted(no_color):
    wanted = {"TERM": "xterm-256color", "NO_COLOR": "1" if no_color else ""}
    shown, errors = _in_terminal(80, wanted)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    assert "yes 0." in plain
    assert ("\x1b[32m" in shown) == (not no_color)
    assert "1/1 simt-shared" in errors


def test_repacking_passes_are_named():
    text = drawn(replace_result(GOOD, copy_bytes=4096))
    assert "wmma-naive: operands are rewritten first, 4096 bytes read and written" in text
    assert "repacked first" not in drawn(GOOD)


def test_recorded_figures_are_marked_and_measured_ones_are_not():
    text = drawn(replace_result(GOOD, measured=RECORD))
    assert "55.5*" in text
    assert "0.080x*" in text
    assert "record ladder-h200-1" in text
    measured = replace_result(GOOD, measured=RECORD, time_ms=1.0, tflops=77.7, of_cublas=0.5)
    text = drawn(measured, backend="gpu")
    assert "77.7 " in text
    assert "0.50x" in text
    assert "55.5" not in text
    assert "*" not in text


def test_bars_are_in_proportion():
    assert cli_ladder.bar(10.0, 10.0) == "█" * cli_ladder.BAR_WIDTH
    assert cli_ladder.bar(5.0, 10.0) == "█" * (cli_ladder.BAR_WIDTH // 2)
    assert cli_ladder.bar(10 / 96, 10.0) == "▏"
    assert cli_ladder.bar(None, 10.0) == ""
    assert cli_ladder.bar(1.0, None) == ""


def test_the_baseline_is_asked_only_on_a_gpu():
    def never(problem, sets):
        raise AssertionError("no baseline on the emulator")

    (result,) = climbed(["simt-naive"], baseline=never)
    assert result.correct


def test_records_are_looked_up_for_the_problem_that_ran():
    asked = []

    def recorded(name, problem):
        asked.append((name, problem.m, problem.n, problem.k, problem.a.dtype.name))
        return RECORD

    (result,) = climbed(["simt-naive"], (4, 6, 8), recorded=recorded)
    assert asked == [("simt-naive", 4, 6, 8, "float32")]
    assert result.measured == RECORD


def test_large_problems_are_checked_on_a_row_of_every_stripe():
    rows = ladder._stripe_rows(1000, seed=1)
    assert np.array_equal(rows // ladder.STRIPE_ROWS, np.arange(32))
    assert rows.max() < 1000


def test_an_architecture_that_nobody_knows_is_named():
    with pytest.raises(UnsupportedError, match=r"sm_1.*sm_90a"):
        ladder.plan_for(RUNGS["simt-naive"], (4, 4, 4), EmulatorBackend("sm_1"))


@pytest.mark.parametrize(
    ("dtype", "accumulate"), few([("bit1", "int32_xor"), ("int4", "int32_saturating"), ("float8_e4m3", "float16")], 1)
)
def test_accumulators_are_those_that_were_asked_for(dtype, accumulate):
    (asked,) = climbed(["mma-final"], size=(33, 25, 128), dtype=dtype, accumulate=accumulate)
    (usual,) = climbed(["mma-final"], size=(33, 25, 128), dtype=dtype)
    assert (asked.dtype, asked.accumulator, asked.correct) == (dtype, accumulate, True)
    assert usual.accumulator != accumulate


def test_a_rung_without_such_accumulators_keeps_its_own():
    (result,) = climbed(["wmma-naive"], size=(16, 16, 128), dtype="bit1", accumulate="int32_xor")
    assert (result.dtype, result.accumulator, result.correct) == ("bit1", "int32", True)
