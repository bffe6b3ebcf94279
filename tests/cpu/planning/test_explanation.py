"""`warptile.plan(...).explain()` in a terminal: 80 columns, and each reason once."""

import re

import numpy as np
import pytest

import warptile as wt
from explained import unwrapped
from warptile.dtypes import DTYPES
from warptile.planning.explanation import by_reason, headline, labelled, listed
from warptile.planning.plan import make_plan
from warptile.problem import Problem


def zeros(*shape, dtype=np.float16):
    return np.zeros(shape, dtype)


def activated(acc, bias):
    return wt.gelu(acc + bias) * wt.sigmoid(acc)


HEADS = zeros(3, 5, 64, 8).transpose(0, 2, 1, 3)
SINGLE, WIDE = zeros(4, 64, 64, dtype=np.float32), zeros(64, 99)

CALLS = {
    "one": lambda **said: wt.plan(WIDE, WIDE.T, **said),
    "epilogue": lambda **said: wt.plan(WIDE, WIDE.T, epilogue=activated, bias=WIDE[0, :64], **said),
    "gate": lambda **said: wt.plan(WIDE, WIDE.T, epilogue=lambda acc: wt.halves(acc)[0] * wt.halves(acc)[1], **said),
    "batch": lambda **said: wt.plan(SINGLE, SINGLE, precision="ieee", **said),
    "heads": lambda **said: wt.plan(HEADS, HEADS.swapaxes(2, 3), **said),
    "copies": lambda **said: wt.plan(SINGLE[:, ::2, ::2], SINGLE[:, ::2], out=SINGLE[:, ::2, ::-1], **said),
    "rung": lambda **said: wt.plan(SINGLE[0], SINGLE[0], rung="simt-warptile", **said),
    "split": lambda **said: wt.plan(wt.split(SINGLE[0], axis=1), SINGLE[0], rung="wgmma-split", **said),
    "invariant": lambda **said: wt.plan(WIDE, WIDE.T, batch_invariant=True, max_sms=20, **said),
    "nothing multiplied": lambda **said: wt.plan(zeros(64, 0), zeros(0, 64), zeros(64), **said),
    "no element": lambda **said: wt.plan(zeros(1, 2, 3, 4, 5, 6, 7, 8, 0, 4), zeros(4, 4), **said),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_line_is_longer_than_80_columns(name):
    lines = CALLS[name](backend="emulator").explain().splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_rungs_that_share_a_reason_share_its_line():
    text = unwrapped(CALLS["batch"](backend="emulator").explain())
    reasons = [line.partition(": ")[2] for line in text.partition("\nrejected\n")[2].splitlines() if line[0] == " "]
    assert len(set(reasons)) == len(reasons)
    said = ": the batch has 4 matrices; it takes one in a launch"
    [batch] = [line for line in text.splitlines() if line.endswith(said)]
    assert {"wgmma-tma", "mma-naive", "wmma-final"} <= set(batch.partition(": ")[0].strip().split(", "))


def test_of_other_configurations_only_the_difference_is_said():
    made = CALLS["rung"](backend="emulator")
    text = unwrapped(made.explain())
    taken = dict(made.plan.config)
    assert f"  simt-warptile BM={2 * taken['BM']} BN={2 * taken['BN']} WM=32 TM=8 MIN_BLOCKS=4: predicted" in text
    assert "BK=16" not in text.partition("\nrejected\n")[2]


def test_configurations_are_compared_with_the_time_that_the_plan_predicts():
    made = CALLS["rung"](backend="emulator")
    [against] = {reason.partition("against ")[2] for _, reason in made.plan.rejected}
    assert against == f"{made.plan.prediction.time_ms:.4g} ms"


def test_what_is_predicted_to_be_a_little_faster_than_the_default_is_said_to_be_too_little():
    large = np.broadcast_to(zeros(1, 1, dtype=np.float32), (4096, 4096))
    made = wt.plan(large, large, precision="ieee", backend="emulator")
    faster = [reason for _, reason in made.plan.rejected if reason.endswith("less than 90% of its time")]
    own, _, taken = re.match(r"predicted ([\d.]+) (ms, against) ([\d.]+) ms; the default is left", faster[0]).groups()
    assert 0.9 * float(taken) < float(own) < float(taken)


def test_a_rung_is_refused_for_the_reason_against_its_default_and_the_others_are_counted():
    element = DTYPES["float32"]
    large = Problem.dense(10**12, 160, 96, element, out=element, accumulator=element)
    expected = r"of 8 x 32; .*; \d reasons against its other configurations$"
    with pytest.raises(wt.UnsupportedError, match=expected) as said:
        make_plan(large, rung="simt-naive")
    assert str(said.value).count("has at most") == 1


def test_how_lines_are_laid_out():
    assert labelled("rung", "word " * 15) == "rung       " + "word " * 13 + "word\n           word"
    assert headline("D = " + "x" * 90) == "D =\n           " + "x" * 90
    assert by_reason([("a", "slow"), ("b", "wide"), ("c", "slow")]) == ["a, c: slow", "b: wide"]
    assert listed(["word " * 17]) == ["  " + ("word " * 15).rstrip() + "\n      word word"]


def test_predictions_of_other_kernels_that_are_too_short_are_said_to_be() -> None:
    """A plan takes mma-unaligned although wgmma-final's prediction, which is too short, is below its own."""
    a, b = np.empty((4096, 49, 32), np.float16), np.empty((4096, 49, 32), np.float16).swapaxes(1, 2)
    plan = wt.plan(a, b).plan
    assert plan.rung.name == "mma-unaligned"
    reasons = dict(plan.rejected)
    own, taken = map(float, re.match(r"predicted ([\d.]+) ms, against ([\d.]+) ms", reasons["wgmma-final"]).groups())
    assert taken == pytest.approx(plan.predicted_us / 1e3, rel=1e-3)
    assert reasons["wgmma-final"].endswith("; its predictions are too short for such problems") == (own < taken)
    others = [reason for name, reason in plan.rejected if name.startswith("mma-unaligned")]
    assert others
    for reason in others:
        own, taken = map(float, re.match(r"predicted ([\d.]+) ms, against ([\d.]+) ms$", reason).groups())
        assert own >= taken
