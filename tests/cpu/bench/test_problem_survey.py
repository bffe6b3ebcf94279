"""Surveys: which problems are drawn, what is timed on each, and the record of what a run left behind."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from covering import examples
from recorded import environment, survey_record
from warptile.bench.campaign import problem_survey
from warptile.bench.campaign.drawn_problems import (
    FEWEST_FLOPS,
    KINDS,
    MOST_BATCH,
    MOST_BYTES,
    MOST_FEW_COLUMNS,
    MOST_FLOPS,
    MOST_SHORT_K,
    SHAPES,
    Selection,
    drawn,
)
from warptile.bench.campaign.problem_survey import (
    ALONG_BOTH,
    BEST,
    BY_COLUMNS,
    CLUSTERED,
    EIGHTS,
    FAR,
    IN_TURNS,
    NEAR,
    ONE_CONSUMER,
    PING_PONG,
    SMALL_CLUSTERED,
    SMALL_SPLIT,
    SPLIT_CLUSTERED,
    STREAMED,
    SWAPPED_WIDE,
    TALL,
    configurations,
    described,
    journal,
    record_of,
)
from warptile.bench.campaign.suite_search import STATUS_TIME
from warptile.bench.protocol.measurements import Surveyed, TimedConfig
from warptile.device import REFERENCE, DeviceLimits
from warptile.planning.plan import config_text
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.estimates import estimate_us
from warptile.rungs.wgmma.launches import pitch_bytes
from warptile.rungs.wgmma.tile_shapes import TUNABLES
from warptile.rungs.wgmma.tiles import is_aligned
from warptile.runtime.execute import planned

RUNG = RUNGS["wgmma-final"]


@dataclass(frozen=True)
class StubBackend:
    """A GPU as plans see it."""

    device: DeviceLimits = REFERENCE
    gpu: str = REFERENCE.name


def kind(problem: Problem) -> tuple[str, ...]:
    """Types and layouts of a problem."""
    names = problem.a.dtype.name, problem.accumulator.name, problem.d.dtype.name
    return (*names, problem.a.major, problem.b.major)


def test_problems_are_the_same_for_a_seed_each_once_and_of_every_kind() -> None:
    problems = drawn(300, 1)
    assert problems == drawn(300, 1)
    assert problems[:100] == drawn(100, 1)
    assert set(problems) != set(drawn(300, 2))
    assert len(set(problems)) == 300
    kinds = Counter(map(kind, problems))
    assert set(kinds) == {
        (group.dtype, group.accumulator, group.out, a_major, b_major) for group, a_major, b_major, _ in KINDS
    }
    for problem in problems:
        m, n, k = problem.m, problem.n, problem.k
        assert min(m, n, k) >= 1
        assert FEWEST_FLOPS <= 2 * m * n * k <= MOST_FLOPS
        assert ((m + n) * k * problem.a.dtype.bits + m * n * problem.d.dtype.bits) / 8 <= MOST_BYTES
    unaligned = sum(problem.a.alignment_bytes < 16 or problem.d.alignment_bytes < 16 for problem in problems)
    assert 0.05 < unaligned / 300 < 0.5
    assert 0.2 < sum(problem.m <= 256 for problem in problems) / 300 < 0.6


def test_problems_with_straddling_rows_can_be_drawn_alone() -> None:
    problems = drawn(40, 3, Selection(straddling=True))
    for problem in problems:
        assert tiles.is_aligned(problem)
        assert problem.m > 96
        assert any(pitch_bytes(operand) % 128 for operand in (problem.a, problem.b))


def is_small(config: Config) -> bool:
    return config["BM"] == 64 or config["SWAP"] == 1


@pytest.mark.parametrize("problem", drawn(examples(24), 7))
def test_what_is_timed_are_legal_configurations_of_which_the_plans_own_is_the_first(problem: Problem) -> None:
    found = configurations(problem, StubBackend(), seed=7)
    assert found == configurations(problem, StubBackend(), seed=7)
    assert found[0] == planned(problem, StubBackend()).config
    assert len({config_text(config) for config in found}) == len(found)
    clustered = CLUSTERED + SMALL_CLUSTERED + SMALL_SPLIT + ALONG_BOTH + SPLIT_CLUSTERED
    of_kinds = PING_PONG + BY_COLUMNS + ONE_CONSUMER + IN_TURNS + EIGHTS + SWAPPED_WIDE + STREAMED + TALL
    assert len(found) <= 1 + BEST + clustered + of_kinds + NEAR + FAR
    assert len(found) > BEST / 2
    assert all(RUNG.illegal(problem, config, REFERENCE) is None for config in found)
    assert all(tuple(config) == TUNABLES for config in found)  # records have their values alone
    times = [
        estimate_us(problem, config, REFERENCE)
        for config in found[1:]
        if config["CM"] * config["CN"] == 1 or (config["CM"] * config["CN"] == 2 and not is_small(config))
    ]  # the best in larger clusters, and of small tiles in any, are taken however slow
    assert max(times) <= problem_survey.FAR_TIME * 1.001 * min(times)


def test_surveys_of_some_problems_alone() -> None:
    found = drawn(12, 3, Selection(misaligned=True, dtype="tfloat32"))
    assert not any(is_aligned(problem) for problem in found)
    assert {problem.a.dtype.name for problem in found} == {"tfloat32"}
    gradients = drawn(6, 3, Selection(weight_gradients=True))
    assert all((each.a.major, each.b.major) == ("col", "row") and each.k > max(each.m, each.n) for each in gradients)
    assert Selection(weight_gradients=True, dtype="int8").options == ["--weight-gradients", "--dtype", "int8"]


def test_surveys_of_shapes_that_others_leave_out() -> None:
    few, short, batched = (drawn(60, 3, Selection(shape=shape)) for shape in SHAPES)
    assert {min(each.n, MOST_FEW_COLUMNS) for each in few} == {each.n for each in few} >= {8}
    assert any(each.n % 8 for each in few)
    assert all(each.m > each.n for each in few)
    assert all(each.k <= MOST_SHORT_K for each in short)
    assert min(each.k for each in short) < 32
    assert all(each.batch == 1 for each in (*few, *short))
    assert all(2 <= each.batch <= MOST_BATCH for each in batched)
    assert {is_aligned(each) for each in batched} == {True, False}
    assert Selection(shape="short-k").options == ["--shape", "short-k"]


def test_what_plans_choose_is_timed_alone_where_that_is_asked_for() -> None:
    problems = drawn(20, 7)
    plans = [planned(problem, StubBackend()) for problem in problems]
    found = [configurations(problem, StubBackend(), plans_only=True) for problem in problems]
    assert found == [(plan.config,) if plan.rung is RUNG else () for plan in plans]


def test_the_best_predictions_are_timed_alone_where_that_is_asked_for() -> None:
    for problem in drawn(6, 9):
        own, *others = configurations(problem, StubBackend(), best_only=True)
        assert own == configurations(problem, StubBackend())[0]
        assert problem_survey.BEST_ALONE - 2 <= len(others) <= problem_survey.BEST_ALONE
        tiles = Counter((config["BM"], config["BN"], config["SWAP"]) for config in others)
        assert max(tiles.values()) == problem_survey.OF_TILE
        predicted = [estimate_us(problem, config, REFERENCE) for config in others]
        assert predicted == sorted(predicted)


def test_a_survey_is_of_plans_or_of_the_best_predictions(tmp_path: Path) -> None:
    given = ["--out", str(tmp_path), "--plans-only", "--best-only"]
    result = CliRunner().invoke(problem_survey.main, given)
    assert result.exit_code == 2
    assert "give one of them" in result.output


@pytest.mark.parametrize("problem", drawn(examples(8), 3, Selection(straddling=True)))
def test_clusters_along_both_axes_are_timed_where_rows_straddle_lines(problem: Problem) -> None:
    found = configurations(problem, StubBackend(), seed=7)
    assert sum(config["CM"] > 1 and config["CN"] > 1 for config in found) >= ALONG_BOTH


def test_clusters_that_split_k_and_share_loads_are_timed_where_rows_straddle_lines() -> None:
    found = [configurations(problem, StubBackend(), seed=7) for problem in drawn(40, 6, Selection(straddling=True))]
    both = [sum(each["CM"] * each["CN"] > 1 and each["SPLITS"] > 1 for each in configs) for configs in found]
    assert sum(count >= SPLIT_CLUSTERED for count in both) > 10


def test_small_tiles_are_timed_in_clusters() -> None:
    counts = []
    for problem in drawn(examples(24), 7):
        clustered = [each for each in configurations(problem, StubBackend(), seed=7) if each["CM"] * each["CN"] > 1]
        counts.append(sum(map(is_small, clustered)))
    assert statistics.median(counts) >= SMALL_CLUSTERED


def test_a_line_says_what_was_measured_and_nothing_else() -> None:
    surveyed, _ = survey_record().surveyed
    config = surveyed.planned
    alone = msgspec.structs.replace(
        surveyed, planned=config, tried=(TimedConfig(config, (11.0, 10.0, 12.0)),), cublaslt_us=(), failed=()
    )
    name, best, own = described(alone).split("; ")
    assert name.startswith(f"{alone.problem.m} {alone.problem.n} {alone.problem.k} ")
    assert (best, own) == ("best 11.0 us", "planned 1.000 of the best")
    beside = msgspec.structs.replace(alone, cublaslt_us=(13.2,))
    assert described(beside).endswith("best 11.0 us, 1.200 of cuBLASLt; planned 1.000 of the best, 1.200 of cuBLASLt")
    failed = msgspec.structs.replace(alone, tried=(), failed=("the worker hung",))
    assert described(failed) == f"{name}; 1 failed: the worker hung"
    other = msgspec.structs.replace(alone, planned=())
    assert described(other) == f"{name}; best 11.0 us"


@pytest.mark.parametrize("status", [0, STATUS_TIME])
def test_a_run_that_ended_leaves_no_note_of_what_it_was_doing(status: int, tmp_path: Path, monkeypatch: Any) -> None:
    def watch(command: Any, state: Path, until_s: float) -> int:
        state.write_bytes(b"a problem")
        return status

    monkeypatch.setattr(problem_survey, "watch", watch)
    problem_survey.supervise(tmp_path, [], time.time() + 60)
    assert not list(tmp_path.iterdir())


def test_a_record_is_what_a_run_left_of_which_later_lines_of_a_problem_count(tmp_path: Path) -> None:
    first, second = survey_record().surveyed
    failed = Surveyed(problem=first.problem, failed=("the worker ended with status -9",))
    lines = b"".join(msgspec.json.encode(each) + b"\n" for each in (failed, second, first))
    journal(tmp_path).write_bytes(lines)
    (tmp_path / "environment.json").write_bytes(msgspec.json.encode(environment()))
    record = record_of(tmp_path, commit="abc", command="a command")
    assert set(record.surveyed) == {first, second}
    assert (record.rung, record.keys, record.git_hash) == (RUNG.name, TUNABLES, "abc")
    assert record.id.startswith("survey-h200-")
