"""Suites of quantized weights, scales, groups and batch invariance: rows, checks, turns, records and tables."""

import json
import math
import sys
import types
from contextlib import nullcontext
from pathlib import Path

import pytest

from recorded import feature_times, features_record
from warptile.bench.feature_suites import (
    feature_rounds,
    grouped_rows,
    invariance_rows,
    quantized_rows,
    scale_rows,
)
from warptile.bench.feature_suites.feature_row import (
    OURS,
    ExactResult,
    FeatureCall,
    FeatureRow,
    OperandMaker,
    exact_product,
)
from warptile.bench.feature_suites.feature_suites import FEATURE_SUITES
from warptile.bench.protocol.environment import Sampler
from warptile.bench.protocol.feature_times import CallTime, FeatureTimes
from warptile.bench.protocol.records import FeaturesRecord, decode
from warptile.bench.protocol.suites import WEIGHTS, ClassTarget
from warptile.bench.report import feature_tables
from warptile.bench.report.documents import DocumentTables, tables
from warptile.bench.report.record_lookup import RecordLookup
from warptile.cli.main import USAGE, run
from warptile.gpu import driver

ROOT = Path(__file__).parents[3]
SUITES = tuple(FEATURE_SUITES.values())
every_suite = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)


# --- rows -------------------------------------------------------------------------------------------------------------


@every_suite
def test_rows_are_named_once_and_count_for_goals_that_exist(suite):
    names = [row.name for row in suite.rows]
    assert len(names) == len(set(names))
    counted = [name for row in suite.rows for name in row.classes]
    assert set(counted) == set(suite.goals)
    assert all(row.classes and "|" not in row.name for row in suite.rows)
    for name, target in suite.goals.items():
        mine = [row for row in suite.rows if name in row.classes]
        assert all((row.read_bytes > 0) or target.of != WEIGHTS for row in mine)
        assert target.geomean is None or target.each is None
        assert OURS not in (target.title, target.of)


@every_suite
def test_a_document_shows_every_suite_and_a_table_has_at_most_seven_columns(suite):
    texts = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    assert sum(f"<!-- table:feature-{suite.name} -->" in text for text in texts) == 1
    assert f"feature-{suite.name}" in tables()
    assert len(feature_tables.row_header(suite)) <= 7
    assert len(feature_tables.GOAL_HEADER) <= 7


def test_rows_reach_what_goals_are_stated_for():
    assert {(n, k) for n, k in quantized_rows.WEIGHTS if min(n, k) < 8192} == set()
    assert [sum(each) for each in grouped_rows.EVEN] == [sum(each) for each in grouped_rows.RAGGED] == [4096, 8192]
    assert any(0 in sizes for sizes in grouped_rows.RAGGED)
    read = {row.name: row.read_bytes for row in FEATURE_SUITES["grouped"].rows if row.read_bytes}
    assert read["128 x 16 rows, N 1536, K 2048, forward"] == 2 * 128 * 1536 * 2048
    assert len(FEATURE_SUITES["grouped"].chosen(("ragged",))) == 12


# --- checks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def made(name, maker):
    """Participants of each suite at extents that the emulator has time for."""
    return {
        "quantized, 4 bits": lambda: quantized_rows.participants(maker, bits=4, m=3, n=128, k=256),
        "quantized, 8 bits": lambda: quantized_rows.participants(maker, bits=8, m=3, n=128, k=256),
        "tensor-wise": lambda: scale_rows.participants(maker, kind=scale_rows.TENSOR, fast=True, m=17, n=48, k=256),
        "row-wise": lambda: scale_rows.participants(maker, kind=scale_rows.ROW, fast=False, m=17, n=48, k=256),
        "block-wise": lambda: scale_rows.participants(maker, kind=scale_rows.BLOCK, fast=False, m=17, n=144, k=256),
        **{
            direction: lambda way=direction: grouped_rows.participants(
                maker, sizes=(3, 0, 21), n=64, k=128, direction=way
            )
            for direction in (grouped_rows.FORWARD, grouped_rows.DGRAD, grouped_rows.WGRAD)
        },
        "invariance": lambda: invariance_rows.participants(maker, m=5, n=64, k=256),
    }[name]()


CASES = (
    "quantized, 4 bits", "quantized, 8 bits", "tensor-wise", "row-wise", "block-wise", "forward", "dgrad", "wgrad",
    "invariance",
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_rows_call_is_right_on_every_operand_set(torch, name):
    participants = made(name, OperandMaker(torch, "cpu", 20_000))
    assert participants[0].name == OURS
    for each in participants:
        if not each.name.startswith("warptile"):
            continue
        call, time = feature_rounds.prepared(OperandMaker(torch, "cpu"), each)
        assert time.failed == ""
        assert 0 <= time.error <= 1
        assert each.sets > 1
        assert each.reference.error_of(call(each.sets - 1)) == time.error
        if each.plan is not None:
            assert time.config.startswith("wgmma")


def test_codes_are_packed_for_torch_as_it_unpacks_them(torch):
    import warptile as wt

    w = wt.quantize(OperandMaker(torch, "cpu").normal(16, 256), bits=4)
    octets, scales = quantized_rows.torch_operands(torch, w)
    assert (tuple(octets.shape), tuple(scales.shape)) == ((16, 128), (2, 16, 2))
    codes = torch.stack((octets >> 4, octets & 15), -1).reshape(16, 256).float() - 8
    factors, zeros = (scales[..., which].T.repeat_interleave(128, 1).float() for which in (0, 1))
    assert torch.equal((codes * factors + zeros).bfloat16(), w.dequantize())


def test_a_wrong_element_is_found(torch):
    maker = OperandMaker(torch, "cpu")
    a, b = maker.normal(20, 300), maker.normal(300, 30, seed=1)
    reference = ExactResult(lambda: exact_product(a, b))
    right = (a.double() @ b.double()).bfloat16()
    assert reference.error_of(right) <= 1
    for wrong in (float("nan"), float("inf"), 0.0):
        found = right.clone()
        found[3, 7] = wrong
        assert reference.error_of(found) > 1
    assert reference.error_of(right[:1]) == math.inf


# --- turns ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one_ms", "sets", "launches"), [(4.0, 1, 1), (0.5, 2, 8), (0.5, 3, 9), (30.0, 8, 1), (1e-6, 4, 1024)]
)
def test_a_turn_is_whole_rotations_of_some_milliseconds(one_ms, sets, launches):
    assert feature_rounds.launches_of(one_ms, sets) == launches


class PretendedEvent:
    clock = 0.0

    def __init__(self, enable_timing):
        self.at = None

    def record(self):
        self.at = PretendedEvent.clock

    def elapsed_time(self, end):
        return end.at - self.at


class PretendedGraph:
    recording = None

    def __init__(self):
        self.calls = []

    def replay(self):
        for call in self.calls:
            call()


class PretendedCapture:
    def __init__(self, graph, stream):
        self.graph = graph

    def __enter__(self):
        PretendedGraph.recording = self.graph

    def __exit__(self, *error):
        PretendedGraph.recording = None


@pytest.fixture
def maker():
    """torch with a GPU whose calls take the milliseconds that they say."""
    cuda = types.SimpleNamespace(
        Event=PretendedEvent, CUDAGraph=PretendedGraph, graph=PretendedCapture, synchronize=lambda: None,
        stream=lambda stream: nullcontext(), Stream=object,
        is_available=lambda: True, get_device_properties=lambda index: types.SimpleNamespace(L2_cache_size=1),
    )  # fmt: skip
    return OperandMaker(types.SimpleNamespace(cuda=cuda, __version__="2.0"), "cuda", 1)


def taking(ms, seen=None, name=""):
    def spend():
        PretendedEvent.clock += ms
        if seen is not None:
            seen.append(name)

    def call(index):
        if PretendedGraph.recording is None:
            spend()
        else:
            PretendedGraph.recording.calls.append(spend)

    return call


def failing(said):
    def prepare():
        raise RuntimeError(f"{said}\nmore")

    return prepare


def row_of(*participants, **changes):
    return FeatureRow("a row", ("few",), lambda maker: participants, **changes)


def test_participants_take_turns_in_alternating_order(maker):
    seen = []
    ours = FeatureCall(OURS, lambda: taking(1.0, seen, "ours"), sets=3)
    other = FeatureCall("torch", lambda: taking(2.0, seen, "torch"))
    found = feature_rounds.measure(maker, row_of(ours, other, read_bytes=10**9), rounds=4)
    assert [time.rounds_us for time in found.times] == [(pytest.approx(1000.0),) * 4, (pytest.approx(2000.0),) * 4]
    assert [each.sets for each in found.times] == [3, 1]
    assert found.speedup_over("torch") == pytest.approx(2)
    assert found.tb_per_s == pytest.approx(1.0)
    first, second = ["ours"] * 3 + ["torch"] * 2, ["torch"] * 2 + ["ours"] * 3
    assert seen[-20:] == [*first, *second, *first, *second]


def test_a_baseline_that_fails_is_recorded_and_the_others_are_timed(maker):
    participants = FeatureCall(OURS, lambda: taking(1.0)), FeatureCall("torch", failing("no kernel"))
    found = feature_rounds.measure(maker, row_of(*participants), rounds=2)
    assert found.failed == ""
    assert len(found.ours.rounds_us) == 2
    assert found.times[1] == CallTime(name="torch", failed="RuntimeError: no kernel")
    assert found.speedup_over("torch") is None
    assert feature_tables.failures([found]) == ["a row, torch: RuntimeError: no kernel"]


def test_a_call_that_cannot_be_captured_is_recorded(maker):
    def call(index):
        if PretendedGraph.recording is not None:
            raise RuntimeError("not while capturing")
        PretendedEvent.clock += 1

    participants = FeatureCall(OURS, lambda: taking(1.0)), FeatureCall("torch", lambda: call)
    found = feature_rounds.measure(maker, row_of(*participants), rounds=2)
    assert found.times[1].failed == "RuntimeError: not while capturing"
    assert len(found.times[0].rounds_us) == 2
    found = feature_rounds.measure(maker, row_of(*participants[::-1]), rounds=2)
    assert found.failed == "RuntimeError: not while capturing"
    assert found.ours is None


def test_a_launch_that_fails_while_it_is_timed_is_recorded(maker, monkeypatch):
    def broken(torch, turns, rounds):
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(feature_rounds, "_rounds", broken)
    found = feature_rounds.measure(maker, row_of(FeatureCall(OURS, lambda: taking(1.0))))
    assert found.failed == "RuntimeError: an illegal memory access was encountered"
    assert found.ours is None
    assert feature_tables.failures([found]) == [f"a row: {found.failed}"]


class Wrong:
    def error_of(self, found):
        return math.inf


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prepare": failing("out of memory")}, "RuntimeError: out of memory"),
        ({"reference": Wrong()}, "wrong result: inf of the allowed error"),
        ({"complaint": lambda found: "other bits"}, "other bits"),
    ],
)
def test_a_row_whose_own_call_fails_or_is_wrong_is_a_failure(maker, changes, said):
    ours = FeatureCall(OURS, **({"prepare": lambda: taking(1.0)} | changes))
    found = feature_rounds.measure(maker, row_of(ours, FeatureCall("torch", lambda: taking(1.0))), rounds=2)
    assert found.failed == said
    assert [time.rounds_us for time in found.times] == [(), ()]


def test_a_row_that_cannot_be_made_is_a_failure(maker):
    def make(maker):
        raise ValueError("no operands")

    found = feature_rounds.measure(maker, FeatureRow("a row", ("few",), make))
    assert found == FeatureTimes(row="a row", failed="ValueError: no operands")
    assert feature_tables.failures([found]) == ["a row: ValueError: no operands"]


# --- tables -----------------------------------------------------------------------------------------------------------


def goals_of(suite, rows):
    lookup = RecordLookup([features_record(suite.name, rows)])
    return {cells[0]: cells for cells in feature_tables.goal_cells(suite, lookup.feature_times(suite.name))}


def test_a_table_has_the_goals_and_every_row():
    suite = FEATURE_SUITES["grouped"]
    record = features_record("grouped")
    text = DocumentTables([record]).block("table", "feature-grouped")
    assert f"| even groups, forward and dgrad | {grouped_rows.DENSE} | 8 of 8 | 2.000 | 2.000 (1.00): " in text
    assert "| 128 x 16 rows, N 1536, K 2048, forward | 100.0 | – | 2.000 | 8.05 |" in text
    assert sum(line.startswith(("| 8 x", "| 8 ragged", "| 64 x", "| 128 x")) for line in text.splitlines()) == len(
        suite.rows
    )
    assert "3 interleaved rounds" in text
    assert record.id in text


@every_suite
def test_without_a_record_the_table_says_what_writes_one(suite):
    text = DocumentTables([]).block("table", f"feature-{suite.name}")
    assert text == f"*No record yet; `warptile bench --suite {suite.name} --save FILE` on a GPU writes one.*\n"


@pytest.mark.parametrize(("ratio", "met"), [(1.05, "yes"), (1.03, "no")])
def test_a_goal_for_each_row_is_met_by_the_lowest(ratio, met):
    suite = FEATURE_SUITES["scales"]
    rows = [feature_times(suite, row, ratio=2.0 if index else ratio) for index, row in enumerate(suite.rows)]
    cells = goals_of(suite, rows)["tensor-wise, fast accumulation"]
    assert cells[4:] == (f"{ratio:.3f} (1.04): 4096x4096x4096 tensor-wise, fast", met)


@pytest.mark.parametrize(("ratio", "met"), [(0.96, "yes"), (0.94, "no")])
def test_a_goal_for_the_mean_is_met_by_the_mean(ratio, met):
    suite = FEATURE_SUITES["invariance"]
    rows = [feature_times(suite, row, ratio=ratio * (2 if index % 2 else 0.5)) for index, row in enumerate(suite.rows)]
    found = goals_of(suite, rows)
    assert found["M = 256 to 4096"][3] == f"{ratio:.3f} (0.95)"
    assert found["M = 256 to 4096"][5] == met


def test_what_failed_misses_a_goal_and_what_was_not_measured_leaves_it_open():
    suite = FEATURE_SUITES["scales"]
    first, second, *_ = [row for row in suite.rows if "tensor-fast" in row.classes]
    good = feature_times(suite, first)
    assert goals_of(suite, [good])["tensor-wise, fast accumulation"][2:] == (
        "1 of 4", "2.000", f"2.000 (1.04): {first.name}", "–",
    )  # fmt: skip
    bad = FeatureTimes(row=second.name, failed="it broke")
    assert goals_of(suite, [good, bad])["tensor-wise, fast accumulation"][5] == "no"
    text = feature_tables.table(RecordLookup([features_record("scales", [good, bad])]), suite="scales")
    assert f"| {second.name} | failed |" in text
    assert f"- {second.name}: it broke" in text
    assert goals_of(suite, [bad])["tensor-wise, fast accumulation"][3:] == ("–", "– (1.04)", "no")


def test_a_goal_without_a_figure_is_neither_met_nor_missed():
    suite = FEATURE_SUITES["quantized"]
    rows = [feature_times(suite, row) for row in suite.rows]
    assert goals_of(suite, rows)["4 bits, M = 64"][5] == "–"
    assert isinstance(suite.goals["4-64"], ClassTarget)


def test_of_two_records_the_newer_row_counts():
    suite = FEATURE_SUITES["scales"]
    old = features_record("scales", date="2026-11-20T12:00:00Z")
    new = features_record("scales", [feature_times(suite, suite.rows[0], ratio=3.0)], date="2026-11-21T12:00:00Z")
    found = RecordLookup([old, new]).feature_times("scales")
    assert found[suite.rows[0].name].speedup_over(scale_rows.TORCH) == pytest.approx(3)
    assert found[suite.rows[1].name].speedup_over(scale_rows.TORCH) == pytest.approx(2)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def pretended(monkeypatch, maker):
    def measured(maker, row, *, rounds):
        suite = next(each for each in SUITES if row in each.rows)
        if row.name == "8192x8192x8192 row-wise, fast":
            return FeatureTimes(row=row.name, failed="it broke")
        return feature_times(suite, row)

    monkeypatch.setattr(driver, "enter", lambda: 0)
    monkeypatch.setattr(feature_rounds, "here", lambda: maker)
    monkeypatch.setattr(feature_rounds, "compile_all", lambda maker, rows: None)
    monkeypatch.setattr(feature_rounds, "measure", measured)
    monkeypatch.setattr(Sampler, "__enter__", lambda self: self)
    monkeypatch.setattr(Sampler, "__exit__", lambda self, *error: None)


@every_suite
def test_the_command_prints_rows_and_goals_and_keeps_a_record(suite, pretended, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    saved = tmp_path / "saved.json"
    assert run(["bench", "--suite", suite.name, "--brief", "--save", str(saved)]) == (suite.name == "scales")
    record = decode(saved.read_bytes(), "it")
    assert isinstance(record, FeaturesRecord)
    assert record.id.startswith(f"{suite.name}-")
    assert record.command == f"warptile bench --suite {suite.name} --brief"
    assert [row.row for row in record.rows] == [row.name for row in suite.rows]
    assert record.failures == (("8192x8192x8192 row-wise, fast: it broke",) if suite.name == "scales" else ())
    said = capsys.readouterr()
    assert suite.rows[0].name.split(",")[0] in said.out
    assert f"goals of {suite.name}" in said.out
    assert f"records/{record.id}.json" in said.err
    assert run(["report", "--run", str(saved), "--out", str(tmp_path / "report.html")]) == 0


def test_some_rows_as_json(pretended, capsys):
    assert run(["bench", "--suite", "grouped", "--only", "wgrad", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "warptile bench --suite grouped --only wgrad"
    assert document["schema"] == "warptile.record.features/1"
    assert len(document["rows"]) == 8
    assert run(["bench", "--suite", "grouped", "--only", "wgrd"]) == USAGE
    assert "the rows of grouped are" in capsys.readouterr().err


def test_without_torch_the_command_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setattr(driver, "enter", lambda: 0)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run(["bench", "--suite", "scales"]) != 0
    assert "pip install 'warptile[torch]'" in capsys.readouterr().err
