"""Counters of the suites' rows: which rows, who takes part, and whose kernels are whose."""

import json
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

import ncu_stand_in
from pretended_gpu import PretendedGpu
from warptile.bench.campaign import ladder_sweep
from warptile.bench.profiling import launch_rows
from warptile.bench.profiling.ncu import ProfileError, launched
from warptile.bench.profiling.ncu_metrics import (
    CLOCK,
    METRICS,
    REGISTERS,
    STALL,
    TENSOR,
    TIME,
    WARPS,
    KernelCounters,
    ParticipantCounters,
)
from warptile.bench.profiling.row_counters import CountRequest, assigned, count, participants, rows_to_count
from warptile.bench.protocol.environment import describe
from warptile.bench.protocol.measurements import Attempt, Searched
from warptile.bench.protocol.records import CountersRecord, SearchesRecord, SuitesRecord
from warptile.bench.protocol.row_result import LIBRARY, NEIGHBOUR, OURS, ParticipantRounds, RowResult
from warptile.bench.protocol.suites import SUITES
from warptile.bench.protocol.workloads import BF16, to_problem
from warptile.bench.report.documents import DocumentTables
from warptile.bench.report.limits import misses_of
from warptile.bench.report.record_lookup import NO_RECORD, RecordLookup
from warptile.gpu import driver
from warptile.planning.tuned_table import ProblemClass

KEY = BF16.key(64, 64, 64, "col")


def row_result(suite, row, ratio, config=None):
    """Our product ``ratio`` times as fast as the library's best and as the row beside."""
    names = (LIBRARY, *([NEIGHBOUR] if row.neighbour else []))
    work = row.problem.flops / row.neighbour.flops if row.neighbour else 1.0
    turns = [ParticipantRounds(who=OURS, rounds_ms=(1.0, 1.0), launches=1, method="events")]
    for who in names:
        time_ms = ratio / work if who == NEIGHBOUR else ratio
        turns.append(ParticipantRounds(who=who, rounds_ms=(time_ms, time_ms), launches=1, method="events"))
    return RowResult(
        suite=suite, problem=row.problem, offset=row.offset, max_sms=row.max_sms, beside=row.neighbour,
        rung="wgmma-final", config=config or {}, turns=tuple(turns), baseline="heuristic 1",
    )  # fmt: skip


def named(suite, name):
    return next(row for row in SUITES[suite] if row.name == name)


def results(slow):
    """Every row with a figure of 1.1, but for those in ``slow``, by their names."""
    rows = [(suite, row) for suite, each in SUITES.items() for row in each if "weights" not in row.classes]

    def usual(row):
        return 9.0 if row.problem.dtype == "float32" else 1.5 if row.problem.sparse else 1.1

    return [row_result(suite, row, slow.get(row.name, usual(row))) for suite, row in rows]


def test_rows_that_miss_are_those_below_their_own_bound():
    slow = {"4096x4096x4094 bf16 TN": 0.5, "1024^3 bf16 TN": 0.95, "8192^3 s8 TN": 1.0}
    found = rows_to_count(results({**slow, "8192^3 s8 NN": 9.0, "4096^3 s8 NN": 9.0}), tuple(SUITES))
    names = {suite: [row.name for row, _ in rows] for suite, rows in found.items()}
    assert names == {"squares": ["1024^3 bf16 TN"], "ragged": ["4096x4096x4094 bf16 TN"]}


def test_where_the_mean_is_missed_rows_below_it_are_counted_too():
    medium = [row.name for suite in SUITES.values() for row in suite if "medium" in row.classes]
    nn = {"8192^3 s8 NN": 9.0, "4096^3 s8 NN": 9.0}
    all_rows = rows_to_count(results({**dict.fromkeys(medium, 1.0), medium[0]: 1.04, **nn}), tuple(SUITES))
    names = [row.name for rows in all_rows.values() for row, _ in rows]
    assert names == medium[1:]


def test_rows_may_be_named_and_the_newest_result_counts():
    row = named("llm", "4096^3 bf16 NN")
    old, new = (row_result("llm", row, 1.1, {"BM": size}) for size in (64, 128))
    found = rows_to_count([old, new], ("llm",), ("4096^3 bf16 NN",))
    assert [(each.name, one.config["BM"]) for each, one in found["llm"]] == [("4096^3 bf16 NN", 128)]
    failed = msgspec.structs.replace(new, failed="it does not compile")
    assert rows_to_count([old, failed], ("llm",), ("4096^3 bf16 NN",)) == {}


def test_counters_are_taken_of_what_the_target_compares_with():
    square, ragged = named("squares", "1024^3 bf16 TN"), named("ragged", "4096x4096x4095 bf16 TN")
    (_, mine), (library, theirs) = participants(square, row_result("squares", square, 1.0))
    assert (mine.algorithm, theirs.algorithm, library.who, library.rung) == (None, "heuristic 1", LIBRARY, "")
    (_, mine), (beside, near) = participants(ragged, row_result("ragged", ragged, 1.0))
    assert (beside.who, near.key, mine.key) == (NEIGHBOUR, ragged.neighbour, ragged.problem)


def asked(*names):
    return [ParticipantCounters(problem=KEY, who=name, config={"BM": 1}) for name in names]


def kernel(name, stream, **metrics):
    return name, {"launch__stream_id": stream, "l1tex__other.sum": 9.0, **metrics}


def test_kernels_of_one_stream_are_one_participants():
    kernels = [kernel("copy", 13.0), kernel("warptile", 13.0), kernel("gemm", 14.0), kernel("reduce", 14.0)]
    output = "warptile-launch 0 ok\nwarptile-launch 1 DeviceError: no\nwarptile-launch 2 ok\n"
    ours, broken, library = assigned(asked(OURS, NEIGHBOUR, LIBRARY), output, kernels)
    assert [each.name for each in ours.kernels] == ["copy", "warptile"]
    assert [each.name for each in library.kernels] == ["gemm", "reduce"]
    assert ours.kernels[0].metrics == {"launch__stream_id": 13.0}
    assert (broken.kernels, broken.failed) == ((), "DeviceError: no")
    with pytest.raises(ProfileError, match="4 kernels in 2 streams, of 3 products"):
        assigned(asked(*"abc"), output.replace("DeviceError: no", "ok"), kernels)


def test_figures_add_up_kernels_and_weigh_shares_by_their_time():
    long, short = ({TIME: time, CLOCK: clock} for time, clock in ((3.0, 2.0), (1.0, 4.0)))
    both = ParticipantCounters(problem=KEY, who=OURS, kernels=(KernelCounters("a", short), KernelCounters("b", long)))
    assert (both.total(TIME), both.over_time(CLOCK), both.longest.name) == (4.0, 2.5, "b")
    assert both.total("dram__bytes_read.sum") is both.over_time("dram__bytes_read.sum") is None


def test_nsight_compute_is_run_over_the_rows_and_lacking_metrics_are_left_out(tmp_path, monkeypatch):
    raw = (
        f'"ID","Kernel Name","{TIME}","launch__stream_id"\n"","","ns",""\n"0","k<1, 2>","5","13"\n"1","gemm","7","14"\n'
    )
    ncu_stand_in.install(tmp_path, monkeypatch, raw=raw, sass="", unknown=[METRICS[2]])
    row = named("squares", "1024^3 bf16 TN")
    ours, library = count([(row, row_result("squares", row, 0.9))])
    assert [(each.who, each.kernels[0].name, each.total(TIME)) for each in (ours, library)] == [
        (OURS, "k<1, 2>", 5.0), (LIBRARY, "gemm", 7.0),
    ]  # fmt: skip
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    collecting = [call for call in calls if "--metrics" in call]
    assert collecting[0][collecting[0].index("--profile-from-start") + 1] == "off"
    metrics = [call[call.index("--metrics") + 1].split(",") for call in collecting]
    assert [len(each) for each in metrics] == [len(METRICS), len(METRICS) - 1]


def test_the_program_launches_ours_and_the_librarys_once_warm_and_once_counted(tmp_path, monkeypatch, capsys):
    gpu = PretendedGpu().install(monkeypatch)
    counted = []
    monkeypatch.setattr(launch_rows, "CublasLt", ladder_sweep.CublasLt)
    monkeypatch.setattr(driver.Stream, "synchronize", lambda self: None, raising=False)
    monkeypatch.setattr(driver, "profiled", lambda: counted.append(gpu.launches) or nullcontext(), raising=False)
    requests = [
        CountRequest(key=KEY), CountRequest(key=KEY, algorithm="heuristic 2"), CountRequest(key=KEY, algorithm="other"),
        CountRequest(key=msgspec.structs.replace(KEY, sparse=True)), CountRequest(key=KEY, offset=1),
    ]  # fmt: skip
    path = tmp_path / "requests.json"
    path.write_bytes(msgspec.json.encode(requests))
    assert launch_rows.main(str(path)) == 1
    made, failed = launched(capsys.readouterr().out)
    assert made == [0, 1, 3, 4]
    assert "does not offer other" in failed[2]
    assert counted[0] == 1


# --- on a page -------------------------------------------------------------------------------------------------------


def records(row, suite, **changes):
    """A suites' record in which one row misses, and a record of its counters."""
    ours = {**TILE, **changes.pop("measured", {})}
    missed = row_result(suite, row, 0.5, ours)
    beside = msgspec.structs.replace(missed, beside_config=TILE) if row.neighbour else missed
    found = []
    for counted, _ in participants(row, beside):
        share = 60.0 if counted.who == OURS else 80.0
        values = {TIME: 2000.0, CLOCK: 1.5e9, TENSOR: share, "dram__bytes_read.sum": 3e6, "dram__bytes_write.sum": 1e6,
                  REGISTERS: 168.0, WARPS: 18.0, STALL.format("barrier"): 2.0}  # fmt: skip
        kernels = (KernelCounters("copy", values), KernelCounters("nvjet", {**values, TIME: 8000.0}))
        found.append(msgspec.structs.replace(counted, kernels=kernels, **changes))
    about = {"git_hash": "1", "command": "", "environment": describe(None)}
    problem = ProblemClass.of(to_problem(row.problem, offset=row.offset))
    tried = tuple(Attempt(config="", brief_ms=time_ms) for time_ms in (1.0, 1.1, 1.5))
    search = Searched(rung="wgmma-final", source="", problem=problem, tried=tried)
    return [
        SearchesRecord(date="2026-11-21T00:00:00Z", searches=(search,), **about),
        SuitesRecord(date="2026-11-22T00:00:00Z", contests=(beside,), **about),
        CountersRecord(date="2026-11-22T00:00:01Z", counted=tuple(found), **about),
    ]


TILE = {"BM": 128, "BN": 256, "BK": 64, "STAGES": 4, "CM": 2}


def lines(row, suite, name, **changes):
    """Rows of the two tables, of times and of counters."""
    text = DocumentTables(records(row, suite, **changes)).block("table", f"limits-{name}")
    tables = text.split("\n\n")[:2]
    return [[line[2:-2].split(" | ") for line in table.splitlines()][2:] for table in tables]


def test_a_miss_stands_with_its_counters_above_what_it_is_compared_with():
    times, counters = lines(named("ragged", "4096x4096x4095 bf16 TN"), "ragged", "unaligned")
    kernel = "128x256x64 4 stages CM=2 after 1 repacking pass"
    least = f"{2 * 4096 * 4096 * 4095 / 928e6:.1f}"
    assert times == [
        ["4096x4096x4095 bf16 TN", kernel, "0.500 (0.880)", "3, half within 10 %", least, "1000.0", "10.0, 1500"],
        ["compared with 4096^3 bf16 TN", kernel, "", "", "", "500.1", "10.0, 1500"],
    ]
    ours, theirs = counters
    assert (ours[0], ours[1].split(",")[0], ours[2].split(", ")[1]) == ("4096x4096x4095 bf16 TN", "60 %", "8.0 MB")
    assert (ours[-2], ours[-1].split(",")[0]) == ("168, 18 %", "barrier 2.0")
    assert (theirs[0], theirs[1].split(",")[0]) == ("compared with 4096^3 bf16 TN", "80 %")
    (_, library), (_, counted) = lines(named("llm", "4096^3 bf16 NN"), "llm", "large")
    assert (library[:2], counted[1].split(",")[0]) == (["compared with cuBLASLt", "`nvjet`"], "80 %")


def test_counters_of_another_configuration_are_not_shown():
    row = named("llm", "4096^3 bf16 NN")
    times, counters = lines(row, "llm", "large", config={**TILE, "BM": 64})
    assert (times[0][1], times[0][6]) == ("128x256x64 4 stages CM=2", "–")
    # The library's was counted with a configuration, of which it has none.
    assert [line[1:] for line in counters] == [["–"] * 6] * 2
    times, counters = lines(row, "llm", "large", failed="it was not reached")
    assert (times[0][6], counters[0][1:]) == ("–", ["–"] * 6)


def test_a_class_that_misses_nothing_says_so():
    made = records(named("llm", "4096^3 bf16 NN"), "llm")
    assert DocumentTables(made).block("table", "limits-medium") == NO_RECORD + "\n"
    good = row_result("llm", named("llm", "768x8192x8192 bf16 TN"), 1.1)
    reached = msgspec.structs.replace(made[1], contests=(good,))
    assert DocumentTables([reached]).block("table", "limits-medium") == "Every row reaches its target.\n"


def test_every_class_that_misses_has_its_table_on_the_page():
    page = (Path(__file__).parents[3] / "docs" / "limits.md").read_text()
    assert [name for name in misses_of(RecordLookup()) if f"<!-- table:limits-{name} -->" not in page] == []
