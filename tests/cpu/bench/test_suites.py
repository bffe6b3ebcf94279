"""Suites: their rows are the issue's, what rounds say, targets met and missed, and the command on a pretended GPU."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from pretended_gpu import PretendedGpu
from warptile.bench.campaign import ladder_sweep
from warptile.bench.campaign.ladder_sweep import columns_of_stripes
from warptile.bench.protocol import measure_rows, suites
from warptile.bench.protocol.environment import Sampler
from warptile.bench.protocol.records import decode
from warptile.bench.protocol.row_result import (
    LIBRARY,
    NEIGHBOUR,
    OURS,
    TORCH,
    ParticipantRounds,
    RowResult,
    Speedup,
    rounds_outside_interval,
)
from warptile.bench.protocol.suites import CLASS_TARGETS, SUITES, SuiteRow
from warptile.bench.protocol.workloads import BF16, E4M3_FAST, S8, to_problem
from warptile.bench.report.chart import svg
from warptile.bench.report.class_summary import MeasuredRow, class_cells, class_summaries, row_cells
from warptile.cli.main import USAGE, run
from warptile.device import REFERENCE
from warptile.errors import CompileError, UnsupportedError
from warptile.gpu.timing import Schedule
from warptile.runtime import device_product

ROWS = [row for rows in SUITES.values() for row in rows]
SQUARE = BF16.key(64, 64, 64, "col")


def row_result(key=SQUARE, ours=(1.0, 1.0, 1.0), **changes):
    """Who takes how long by ``theirs``, in the same rounds as ours."""
    theirs = {LIBRARY: (2.0, 2.2, 1.8), **changes.pop("theirs", {})}
    turns = tuple(
        ParticipantRounds(who=who, rounds_ms=rounds, launches=3, method="events")
        for who, rounds in {**theirs, OURS: ours}.items()
    )
    given = {"suite": "squares", "rung": "wgmma-final", "config": {}, "turns": turns}
    return RowResult(problem=key, **{**given, **changes})


# --- rows ------------------------------------------------------------------------------------------------------------


def test_no_row_is_measured_twice_and_all_count_for_a_known_target():
    known = {(row.problem, row.offset, row.max_sms, row.neighbour) for row in ROWS}
    assert len(known) == len(ROWS)
    assert {name for row in ROWS for name in row.classes} == set(CLASS_TARGETS)


def test_rows_whose_target_is_another_product_have_one():
    for row in ROWS:
        wanted = any(CLASS_TARGETS[name].of == suites.NEIGHBOUR for name in row.classes)
        assert wanted == (row.neighbour is not None), row.name


def test_every_row_has_a_plan():
    device = measure_rows.GpuModel(REFERENCE.arch, None)
    for row in ROWS:
        own, *_ = measure_rows.plans_of(row, device)
        few = ("simt-split-k", "simt-gemv")
        of_types = {
            "float32": ("wgmma-split", "wgmma-bf16x6", "simt-warptile", *few),
            "float64": ("mma-final", "mma-specialized", "mma-split-k", *few),
        }
        taken = of_types.get(row.problem.dtype, ("wgmma-final", "mma-unaligned"))
        assert own.rung.name != "mma-unaligned" or row.problem.batch > 1, row.name
        assert own.rung.name in (("wgmma-sparse",) if row.problem.sparse else taken), row.name
        assert own.problem == to_problem(row.problem, offset=row.offset)
        assert row.max_sms is None or own.config["SMS"] <= row.max_sms < REFERENCE.sms


def test_products_that_wait_for_memory_have_short_turns():
    square, thin = measure_rows.schedule_of(SuiteRow(BF16.key(4096, 4096, 4096), ()), brief=True), SuiteRow(SQUARE, ())
    assert square == measure_rows.BRIEF
    assert measure_rows.schedule_of(thin, brief=True).turn_ms == measure_rows.BRIEF.turn_ms / 4
    assert measure_rows.schedule_of(thin, brief=False).rounds == measure_rows.WHOLE.rounds


# --- rounds ----------------------------------------------------------------------------------------------------------


def test_a_share_is_faster_or_slower_only_when_its_interval_says_so():
    seven = [1.01, 1.02, 1.015, 1.012, 1.018, 1.3, 1.01]
    assert Speedup.of(seven).verdict == "faster"
    assert Speedup.of([1 / ratio for ratio in seven]).verdict == "slower"
    assert Speedup.of([*seven[:-1], 0.99]).verdict == "equal"
    assert Speedup.of([*seven, 1.02, 0.9]).verdict == "faster"  # of nine one may stray
    assert Speedup.of([*seven, 0.95, 0.9]).verdict == "equal"
    assert Speedup.of([2.0] * 5).verdict == "equal"  # five coins show one side too often


def test_the_interval_misses_the_median_in_one_of_twenty():
    ratios = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8]
    share = Speedup.of(reversed(ratios))
    assert (share.low, share.median, share.high) == (1.0, 1.4, 1.8)
    assert (share.least, share.most) == (1.1, 1.7)
    drawn = np.sort(np.random.default_rng(0).lognormal(size=(20_000, 9)), axis=1)  # their median is 1
    missed = np.mean((drawn[:, 1] > 1) | (drawn[:, -2] < 1))
    assert missed == pytest.approx(2 * 10 / 2**9, abs=0.005)
    assert [rounds_outside_interval(rounds) for rounds in (5, 6, 8, 9, 11, 12)] == [None, 0, 0, 1, 1, 2]


def test_what_stands_beside_is_timed_apart_where_the_library_lets_the_chip_cool(gpu):
    row = SUITES["types"][1]
    for library_ms, apart in ((0.5, False), (4.0, True)):
        gpu.library_ms = (library_ms,)
        bench = ladder_sweep.Bench(Sampler())
        found = measure_rows.measure(bench, "types", row, brief=True)
        bench.close()
        assert [each.who for each in found.turns] == ([LIBRARY, OURS] if apart else [LIBRARY, NEIGHBOUR, OURS])
        assert [each.who for each in found.near] == ([NEIGHBOUR, OURS] if apart else [])
        assert found.speedup_over(NEIGHBOUR).median == pytest.approx(63 / 64)
        assert found.speedup_over(LIBRARY).median == pytest.approx(library_ms / 0.4)


def test_what_stands_beside_is_compared_by_its_rate():
    beside = BF16.key(64, 64, 32, "col")  # half the work
    one = row_result(ours=(1.0, 1.0), beside=beside, theirs={LIBRARY: (2.0, 2.0), NEIGHBOUR: (0.45, 0.55)})
    assert one.speedup_over(NEIGHBOUR).median == pytest.approx(1.0)
    assert one.speedup_over(LIBRARY).median == 2.0
    assert one.speedup_over(TORCH) is None
    assert one.tflops(NEIGHBOUR) == beside.tflops(0.5)


def test_bytes_of_weights_are_those_of_b():
    one = row_result(E4M3_FAST.key(16, 8192, 4096, "col"), ours=(0.01,) * 3)
    assert one.weight_tb_per_s(8) == pytest.approx(8192 * 4096 / 1e-5 / 1e12)
    assert row_cells(one)[-1] == "3.36"


# --- targets ---------------------------------------------------------------------------------------------------------


def beside_library(ratios):
    """Rows of the large class with given speeds over the library's."""
    rows = [SuiteRow(BF16.key(size, size, size, "col"), ("large",)) for size in range(1, len(ratios) + 1)]
    return [
        MeasuredRow(row, row_result(row.problem, ours=(1.0,) * 7, theirs={LIBRARY: (ratio,) * 7}))
        for row, ratio in zip(rows, ratios, strict=True)
    ]


@pytest.mark.parametrize(
    ("ratios", "met"), [((1.03, 1.01, 1.03), True), ((1.01, 1.02, 1.01), False), ((1.3, 1.3, 0.97), False)]
)
def test_a_class_meets_its_target_by_mean_and_by_each(ratios, met):
    (found,) = class_summaries(beside_library(ratios))
    assert (found.name, found.met, found.rows) == ("large", met, 3)
    assert found.geomean == pytest.approx(np.prod(ratios) ** (1 / 3))
    assert found.worst == min(ratios)
    assert found.worst_row == f"{1 + ratios.index(min(ratios))}^3 bf16 TN"


@pytest.mark.parametrize(("first", "met"), [(1.1, None), (0.9, False)])
def test_rows_that_were_not_measured_leave_a_target_open_unless_another_misses_it(first, met):
    measured = beside_library((first, 1.1))
    (found,) = class_summaries([measured[0], replace(measured[1], result=None)])
    assert (found.met, found.measured) == (met, 1)
    assert class_cells(found)[2] == "1 of 2"


def test_a_row_that_failed_misses_its_target():
    measured = beside_library((1.1, 1.1))
    (found,) = class_summaries(
        [measured[0], replace(measured[1], result=row_result(measured[1].row.problem, failed="wrong"))]
    )
    assert (found.met, found.measured) == (False, 1)


def test_rows_are_counted_by_what_their_rounds_say():
    (found,) = class_summaries(beside_library((1.1, 1.2, 1.0, 0.9)))
    assert class_cells(found)[-2] == "2, 1, 1"


def test_without_a_figure_nothing_is_held_to_a_target():
    row = SuiteRow(SQUARE, ("max-sms",), neighbour=SQUARE, max_sms=120)
    (found,) = class_summaries([MeasuredRow(row, row_result(beside=SQUARE, theirs={NEIGHBOUR: (0.9,) * 3}))])
    assert (found.met, found.geomean) == (None, pytest.approx(0.9))


# --- pictures --------------------------------------------------------------------------------------------------------


def test_a_picture_has_a_dot_for_every_row_that_is_compared():
    wrong = row_result(BF16.key(32, 32, 32), failed="wrong result")
    alone = row_result(S8.key(16, 16, 16), turns=())
    text = svg("a < b", [row_result(), row_result(BF16.key(64, 64, 128), theirs={LIBRARY: (0.5,) * 3}), wrong, alone])
    drawn = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    dots = [float(dot.get("cx")) for dot in drawn.iter(f"{space}circle")]
    one = next(float(each.get("x")) for each in drawn.iter(f"{space}text") if each.text == "1")
    assert len(dots) == 2
    assert dots[0] > one > dots[1]
    assert all(0 < dot < float(drawn.get("width")) for dot in dots)
    titles = [each.text for each in drawn.iter(f"{space}title")]
    assert titles[0] == "64^3 bf16 TN: 2.000 of cuBLASLt (1.800 to 2.200)"


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("warptile.tuning.search.compile_ahead", lambda *arguments, **options: iter(()))
    monkeypatch.setattr(Sampler, "__enter__", lambda self: self)
    monkeypatch.setattr(Sampler, "__exit__", lambda self, *error: None)
    monkeypatch.setattr(device_product, "operand_sets", lambda *sizes: 3)
    monkeypatch.setattr(measure_rows, "BRIEF", Schedule("sustained", rounds=3, turn_ms=2.0, warm_up_ms=0.0))
    dense = BF16.key(128, 64, 64, "col")
    rows = (
        SuiteRow(SQUARE, ("large",)),
        SuiteRow(BF16.key(64, 63, 64, "col"), ("unaligned",), neighbour=SQUARE),
        SuiteRow(SQUARE, ("unaligned",), offset=1, neighbour=SQUARE),
        SuiteRow(msgspec.structs.replace(SQUARE, batch=3), ("batch",)),
        SuiteRow(msgspec.structs.replace(dense, sparse=True), ("sparse",), neighbour=dense),
        SuiteRow(dense, ("max-sms",), neighbour=dense, max_sms=1),
        SuiteRow(E4M3_FAST.key(64, 64, 64), ("e4m3-anywhere",), neighbour=E4M3_FAST.key(64, 64, 64, "col")),
    )
    monkeypatch.setitem(SUITES, "types", rows)
    made = PretendedGpu().install(monkeypatch)
    made.time_ms = lambda rung, config: 0.2 if rung == "wgmma-sparse" else 0.4 if config.get("SMS", 2) > 1 else 0.8
    return made


def without_torch(key, pointers):
    raise UnsupportedError("torch is not installed")


def test_the_command_measures_all_rows_beside_what_they_ask_for(gpu, capsys, tmp_path, monkeypatch):
    gpu.without_library.add("float8_e4m3")
    monkeypatch.setattr(ladder_sweep, "torch_launch", without_torch)
    assert run(["bench", "--suite", "types", "--brief", "--json", "--plot", str(tmp_path / "plot.svg")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["suite"], document["brief"]) == ("warptile.bench/2", "types", True)
    rows = {row["name"]: row for row in document["rows"]}
    assert len(rows) == 7
    square = rows["64^3 bf16 TN"]
    assert square["speed_over"]["cuBLASLt"]["median"] == pytest.approx(0.5 / 0.4)
    assert [turns["who"] for turns in square["turns"]] == [LIBRARY, OURS]
    assert (square["baseline"], square["first_heuristic"]) == ("heuristic 1", pytest.approx(0.5 / 0.75))
    assert all(len(turns["rounds_ms"]) == 3 for turns in square["turns"])
    assert (square["torch"], square["no_torch"]) == (None, "torch: UnsupportedError: torch is not installed")
    assert rows["64x63x64 bf16 TN"]["speed_over"]["beside"]["median"] == pytest.approx(63 / 64)
    assert rows["128x64x64 bf16 TN sparse"]["speed_over"]["beside"]["median"] == pytest.approx(2.0)
    assert rows["128x64x64 bf16 TN on 1 SMs"]["speed_over"]["beside"]["median"] == pytest.approx(0.5)
    assert rows["3 of 64^3 bf16 TN"]["error_ratio"] <= 1
    alone = rows["64^3 e4m3 fast NN"]
    assert (alone["baseline"], alone["no_baseline"]) == (None, "baseline: no float8_e4m3")
    assert list(alone["speed_over"]) == ["beside"]
    classes = {each["name"]: each for each in document["classes"]}
    assert classes["large"]["met"]
    assert (classes["sparse"]["met"], classes["max-sms"]["met"]) == (True, None)
    drawn = ET.parse(tmp_path / "plot.svg").getroot()
    assert sum(1 for _ in drawn.iter("{http://www.w3.org/2000/svg}circle")) == 7


def test_only_some_rows_as_a_table_and_as_a_record(gpu, capsys, tmp_path):
    path = tmp_path / "types.json"
    assert run(["bench", "--suite", "types", "--brief", "--only", "offset", "--only", "3 of", "--save", str(path)]) == 0
    text = capsys.readouterr().out
    record = decode(path.read_bytes(), path.name)
    assert (record.kind, len(record.contests)) == ("suites", 2)
    assert record.command == "warptile bench --suite types --only offset --only '3 of' --brief"
    assert [text.count(name) for name in ("offset 1", "3 of 64^3", "128x64x64")] == [2, 2, 0]  # row, least of its class
    assert "1 of 2" in text  # unaligned rows
    assert run(["bench", "--suite", "types", "--only", "nothing"]) == USAGE
    assert "the rows of types are '64^3 bf16 TN'" in capsys.readouterr().err


def test_a_wrong_row_fails_the_command_and_leaves_the_others(gpu, capsys):
    gpu.wrong.add("wgmma-sparse")
    assert run(["bench", "--suite", "types", "--brief", "--only", "128x64x64"]) == 1
    text = capsys.readouterr().out
    assert "wrong result" in text
    assert "0.500 x 128x64x64 bf16 TN" in text  # on one SM, relative to all of them


def test_a_row_whose_kernel_does_not_compile_fails_and_leaves_the_others(gpu, monkeypatch, capsys):
    def compiled(plan, made=device_product.compiled):
        if plan.problem.batch > 1:
            raise CompileError("it spills\nand the compiler has more to say")
        return made(plan)

    monkeypatch.setattr(device_product, "compiled", compiled)
    assert run(["bench", "--suite", "types", "--brief", "--only", "3 of", "--only", "offset"]) == 1
    text = capsys.readouterr().out
    assert "CompileError: it spills" in text
    assert "more to say" not in text
    assert "1.000 x 64^3 bf16 TN" in text


def test_of_a_large_b_one_column_of_each_stripe_is_compared(monkeypatch):
    monkeypatch.setattr(ladder_sweep, "CHECKED_ELEMENTS", 64 * 10)
    generator = np.random.default_rng(0)
    assert columns_of_stripes(BF16.key(8, 10, 64), generator) is None
    found = columns_of_stripes(BF16.key(8, 100, 64), generator)
    assert len(found) == 10
    assert all(10 * stripe <= column < 10 * stripe + 10 for stripe, column in enumerate(found))


def test_a_wrong_column_of_a_large_product_is_found(gpu, monkeypatch, capsys):
    monkeypatch.setattr(ladder_sweep, "CHECKED_ELEMENTS", 64 * 8)
    assert run(["bench", "--suite", "types", "--brief", "--only", "64^3 bf16 TN"]) == 0
    gpu.wrong.add("wgmma-final")
    assert run(["bench", "--suite", "types", "--brief", "--only", "64^3 bf16 TN"]) == 1
