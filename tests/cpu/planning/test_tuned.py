"""What was tuned is found again: the user's table first, then the one that ships, for the same problem alone."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from warptile.device import KNOWN, REFERENCE
from warptile.dtypes import dtype
from warptile.planning import shipped_table, tuned_table
from warptile.planning.plan import config_text
from warptile.planning.shipped_table import Origin, ShippedEntry, ShippedTable
from warptile.planning.tuned_table import Entry, ProblemClass, Search, Table, lookup, source_of
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.wgmma.shortlist import shortlist
from warptile.runtime.execute import _planned, planned

RUNG = RUNGS["wgmma-final"]
GPU = "NVIDIA H200"


def problem(m, n, k, element="bfloat16", a_major="row", b_major="col", **options):
    of = dtype(element)
    return Problem.dense(m, n, k, of, out=of, accumulator=dtype("float32"), a_major=a_major, b_major=b_major, **options)


def default(given, **changes):
    return {**RUNG.default_config(given), **changes}


def table_of(outcomes):
    keys = tuple(RUNG.default_config(problem(64, 64, 64)))
    entries = tuple(
        ShippedEntry(
            msgspec.structs.astuple(ProblemClass.of(given)), tuple(config[key] for key in keys), 700.0, 1.02, 0
        )
        for given, config in outcomes
    )
    return ShippedTable(shipped_table.SCHEMA, GPU, RUNG.name, (Origin("searches-1", "abc", "a source"),), keys, entries)


@pytest.fixture
def ship(tmp_path, monkeypatch):
    """Ships a table of (problem, configuration) instead of the package's."""
    monkeypatch.setattr(shipped_table, "FOLDER", tmp_path)
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.delenv("WARPTILE_AUTOTUNE", raising=False)

    def forget():
        for cached in (
            shipped_table.table,
            tuned_table._shipped,
            tuned_table._users,
            tuned_table._lookup,
            _planned,
        ):
            cached.cache_clear()
        tuned_table._looks.clear()

    def put(*outcomes):
        shipped_table.path_of(RUNG.name).write_bytes(shipped_table.encode(table_of(outcomes)))
        forget()

    forget()
    yield put
    forget()


SQUARE = problem(4096, 4096, 4096)
TUNED = default(SQUARE, CM=2, GROUP=16)


def test_the_tables_file_has_a_line_for_each_entry_and_reads_back():
    table = table_of([(SQUARE, TUNED), (problem(16, 8192, 8192), default(problem(16, 8192, 8192)))])
    raw = shipped_table.encode(table)
    assert msgspec.json.decode(raw, type=ShippedTable) == table
    assert raw.count(b"\n") == 2 + len(table.entries)


def test_what_ships_serves_every_gpu_and_says_where_it_was_found(ship):
    ship((SQUARE, TUNED))
    for gpu in (GPU, "NVIDIA H100 80GB HBM3"):
        found = lookup(RUNG, SQUARE, gpu)
        assert found.config == TUNED
        assert (
            "tuned for this problem on an NVIDIA H200 (700 TFLOP/s, 1.02 of cuBLASLt's best at commit abc"
            in found.origin
        )
    assert lookup(RUNGS["wgmma-store"], SQUARE, GPU) is None


def test_a_plan_for_a_gpu_takes_it_and_explains_it_and_one_for_the_emulator_does_not(ship):
    ship((SQUARE, TUNED))
    plan = _planned(SQUARE, None, None, REFERENCE, GPU, "cached")
    assert plan.config == TUNED
    assert "origin     tuned for this problem on an NVIDIA H200" in plan.explain()
    untuned = _planned(SQUARE, None, None, REFERENCE, None, "cached")
    assert untuned.config == RUNG.default_config(SQUARE)
    assert "origin     predicted" in untuned.explain()
    given = _planned(SQUARE, RUNG.name, tuple(default(SQUARE, GROUP=4).items()), REFERENCE, GPU, "cached")
    assert given.config["GROUP"] == 4
    assert "origin     given" in given.explain()


def test_the_users_own_table_comes_first_and_a_change_of_it_is_seen(ship):
    ship((SQUARE, TUNED))
    assert lookup(RUNG, SQUARE, GPU).config == TUNED
    key = Search(GPU, "c", RUNG.name, source_of(RUNG), ProblemClass.of(SQUARE))
    for group in (4, 8):
        mine = default(SQUARE, GROUP=group, CN=2)
        Table(GPU).append(Entry(search=key, config=mine, stage=1, time_ms=0.2, winner=True))
        found = lookup(RUNG, SQUARE, GPU)
        assert (found.config, "on this NVIDIA H200" in found.origin) == (mine, True)


def _plan():
    return planned(SQUARE, SimpleNamespace(device=REFERENCE, gpu=GPU))


_TUNES = """
import sys
import msgspec
from warptile.planning.tuned_table import Entry, Table
Table(sys.argv[1]).append(msgspec.json.decode(sys.argv[2], type=Entry))
"""


def test_a_running_process_plans_anew_when_another_one_has_tuned(ship):
    ship((SQUARE, TUNED))
    assert _plan().config == TUNED
    key = Search(GPU, "c", RUNG.name, source_of(RUNG), ProblemClass.of(SQUARE))
    for group in (4, 8):
        mine = default(SQUARE, GROUP=group, CN=2)
        entry = Entry(search=key, config=mine, stage=1, time_ms=0.2, winner=True)
        subprocess.run([sys.executable, "-c", _TUNES, GPU, msgspec.json.encode(entry).decode()], check=True)
        time.sleep(tuned_table.LOOK_S * 1.1)
        plan = _plan()
        assert (plan.config, "on this NVIDIA H200" in plan.origin) == (mine, True)
        assert _plan() is plan


def test_the_users_table_is_looked_at_once_a_second_and_read_when_it_has_changed(ship, monkeypatch):
    ship((SQUARE, TUNED))
    looks, reads, now = [], [], [1000.0]
    stat, read = Path.stat, Path.read_bytes
    table = Table(GPU)
    monkeypatch.setattr(Path, "stat", lambda path, **named: (looks.append(path), stat(path, **named))[1])
    monkeypatch.setattr(Path, "read_bytes", lambda path: (reads.append(path), read(path))[1])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def counted():
        for _ in range(5):
            _plan()
        found = looks.count(table.path), reads.count(table.path)
        looks.clear()
        reads.clear()
        return found

    assert counted() == (1, 0)
    assert counted() == (0, 0)
    now[0] += tuned_table.LOOK_S
    assert counted() == (1, 0)
    key = Search(GPU, "c", RUNG.name, source_of(RUNG), ProblemClass.of(SQUARE))
    table.append(Entry(search=key, config=TUNED, stage=0, time_ms=0.2))
    plan = _plan()
    assert counted()[0] <= 1
    now[0] += tuned_table.LOOK_S
    assert counted() == (1, 0)
    assert _plan() is plan, "a search that goes on is no reason to plan anew"


def test_a_kernel_that_was_edited_leaves_the_table_in_use(ship):
    table = table_of([(SQUARE, TUNED)])
    without_group = [key for key in table.keys if key != "GROUP"]
    before_group = msgspec.structs.replace(
        table, keys=(*without_group, "GONE"),
        entries=tuple(
            msgspec.structs.replace(each, config=(*(TUNED[key] for key in without_group), 7)) for each in table.entries
        ),
    )  # fmt: skip
    ship()
    for made, expected in ((table, TUNED), (before_group, {**TUNED, "GROUP": 8})):
        shipped_table.path_of(RUNG.name).write_bytes(shipped_table.encode(made))
        for cached in (shipped_table.table, tuned_table._shipped, tuned_table._lookup):
            cached.cache_clear()
        assert lookup(RUNG, SQUARE, GPU).config == expected
    ship((SQUARE, {**TUNED, "BM": 48}))  # no longer legal
    assert lookup(RUNG, SQUARE, GPU) is None


@pytest.mark.parametrize(
    ("given", "served"),
    [
        (problem(4096, 4096, 4096), True),
        (problem(4096, 4096, 4096, "float16"), True),
        (problem(4097, 4096, 4096), False),
        (problem(8192, 4096, 4096), False),
        (problem(4096, 5120, 4096), False),
        (problem(4096, 4096, 4032), False),
        (problem(4096, 4096, 4095), False),
        (problem(4096, 4096, 4096, batch=2), False),
        (problem(4096, 4096, 4096, b_major="row"), False),
        (problem(4096, 4096, 4096, a_major="col"), False),
        (problem(4096, 4096, 4096, with_c=True), False),
        (problem(4096, 4096, 4096).displaced(1), False),
    ],
)
def test_a_table_serves_its_problem_in_types_that_cost_the_same_and_no_other(ship, given, served):
    ship((SQUARE, TUNED))
    found = lookup(RUNG, given, GPU)
    assert (found is not None) == served
    plan = _planned(given, None, None, REFERENCE, GPU, "cached")
    if served:
        assert found.config == plan.config == TUNED
        assert found.origin == plan.origin
        assert found.origin.startswith("tuned for this problem on an NVIDIA H200")
    else:
        assert (plan.origin, plan.config) == ("predicted", RUNG.default_config(given))


@pytest.mark.parametrize(
    ("tuned", "asked", "accumulators"),
    [
        ("float16", "bfloat16", ("float32", "float32")),
        ("float8_e5m2", "float8_e4m3", ("float32", "float32")),
        ("uint8", "int8", ("int32", "int32")),
        ("float8_e4m3", "float8_e4m3", ("float32", "float32_fast")),
        ("int8", "int8", ("int32", "int32_saturating")),
    ],
)
def test_types_are_alike_in_both_directions_and_accumulators_are_not(ship, tuned, asked, accumulators):
    out = {"int32": "int32", "float32": "bfloat16"}[accumulators[0]]
    pair = [
        Problem.dense(4096, 4096, 4096, dtype(of), out=dtype(out), accumulator=dtype(to), b_major="col")
        for of, to in zip((tuned, asked), accumulators, strict=True)
    ]
    for one, other in (pair, pair[::-1]):
        ship((one, default(one)))
        assert lookup(RUNG, one, GPU).config == default(one)
        assert (lookup(RUNG, other, GPU) is not None) == (accumulators[0] == accumulators[1])


@pytest.mark.parametrize("order", [1, -1])
def test_a_problems_own_result_comes_before_that_of_a_type_that_costs_the_same(ship, order):
    own, other = default(SQUARE, GROUP=4), default(SQUARE, GROUP=16)
    half = problem(4096, 4096, 4096, "float16")
    ship(*[(SQUARE, own), (half, other)][::order])
    assert lookup(RUNG, SQUARE, GPU).config == own
    assert lookup(RUNG, half, GPU).config == other


def test_what_was_tuned_on_another_number_of_sms_does_not_count(ship):
    ship((SQUARE, TUNED))
    for device in (KNOWN["NVIDIA H100 PCIe"], KNOWN["NVIDIA H20"]):
        assert lookup(RUNG, SQUARE, device.name, device=device) is None
        assert _planned(SQUARE, None, None, device, device.name, "cached").origin == "predicted"
    same = KNOWN["NVIDIA H100 80GB HBM3"]
    assert lookup(RUNG, SQUARE, same.name, device=same).config == TUNED


def test_on_a_part_of_the_gpu_a_result_counts_if_its_launch_fits(ship):
    large, small = default(SQUARE), default(problem(512, 512, 512))
    ship((SQUARE, large), (problem(512, 512, 512), {**small, "SMS": 16}))
    part = REFERENCE.occupying(64)
    assert lookup(RUNG, SQUARE, GPU, device=part) is None
    plan = _planned(SQUARE, None, None, part, GPU, "cached")
    assert plan.kernel.ctas <= 64


def test_a_configuration_is_adapted_to_other_extents():
    splits = shortlist(problem(256, 256, 65536), RUNG.illegal, REFERENCE)
    split = next(config for config in splits if (config["BM"], config["BN"], config["SPLITS"]) == (128, 128, 32))
    made = {
        shape: RUNG.adapt(problem(*shape), split, (256, 256, 65536, 1))["SPLITS"]
        for shape in ((256, 256, 32768), (256, 512, 65536), (256, 1024, 65536), (256, 256, 512))
    }
    assert list(made.values()) == [32, 16, 8, 8]
    wide = default(
        SQUARE, BM=128, BN=256, BK=64, CONSUMERS=2, SWAP=0, STAGES=3, CM=1, CN=1, OVERLAP=1, PINGPONG=0, STREAM=0
    )
    fewest, full = ({**wide, "SMS": sms} for sms in (128, 132))
    larger = problem(4096, 4352, 4096)  # 544 tiles: five waves of 109
    assert RUNG.adapt(larger, fewest, (4096, 4096, 4096, 1))["SMS"] == 109
    assert RUNG.adapt(larger, full, (4096, 4096, 4096, 1))["SMS"] == 132
    short = RUNG.adapt(problem(4096, 4096, 128), wide, (4096, 4096, 4096, 1))
    assert (short["OVERLAP"], RUNG.illegal(problem(4096, 4096, 128), short)) == (0, None)


def test_looking_up_again_takes_microseconds(ship):
    ship(*((problem(1024 + 128 * i, 4096, 4096), TUNED) for i in range(100)))
    for given in (problem(1024, 4096, 4096), problem(1100, 4096, 4096)):
        lookup(RUNG, given, GPU)
        seconds = []
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(10):
                lookup(RUNG, given, GPU)
            seconds.append((time.perf_counter() - start) / 10)
        assert min(seconds) < 50e-6, config_text(TUNED)
