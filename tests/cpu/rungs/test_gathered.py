"""wgmma-final with an A that two emulated GPUs gather while it multiplies, and what goes wrong if they do not."""

from dataclasses import replace

import numpy as np
import pytest

from covering import few
from gathered_product import Gathered, push, run
from warptile.device import REFERENCE
from warptile.errors import DataRace, Deadlock, UninitializedRead, UnsupportedError
from warptile.launch.concurrent_stream import ConcurrentStream, StreamFlag
from warptile.planning.gathered_plan import GatheredPlan
from warptile.planning.plan import Plan, make_plan
from warptile.rungs import RUNGS
from warptile.rungs.wgmma import gathered as option
from warptile.rungs.wgmma.gathered import SHARD_FLAGS, Shards
from wgmma_product import small

USUAL = Gathered()  # shards of 96 rows in tiles of 64: one tile has rows of both
CONFIGS = {
    "cooperative": (("BM", 128), ("CONSUMERS", 2), ("SMS", 2)),
    "ping-pong": (("CONSUMERS", 2), ("PINGPONG", 1), ("BM", 64), ("SMS", 2)),
    "overlapped": (("BM", 128), ("BN", 64), ("CONSUMERS", 2), ("OVERLAP", 1), ("SMS", 2)),
    "cluster along M": (("CONSUMERS", 1), ("BM", 64), ("CM", 2), ("SMS", 2)),
    "cluster along N": (("CONSUMERS", 1), ("BM", 64), ("BN", 32), ("CN", 2), ("SMS", 2)),
}


@pytest.mark.parametrize("schedule", few(["random:1", "latest", "earliest"], 1))
def test_both_gpus_have_the_product_whenever_rows_arrive(schedule):
    of_first, of_second = (run(USUAL, gpu, schedule=schedule) for gpu in range(2))
    assert of_first[0] <= 1
    assert np.array_equal(of_first[1].view(np.uint16), of_second[1].view(np.uint16)), "whichever rows come first"


@pytest.mark.parametrize("config", few(tuple(CONFIGS), 1))
def test_every_schedule_of_tiles_gathers(config):
    ratio, _, _ = run(replace(USUAL, config=CONFIGS[config], m=256), 1)
    assert ratio <= 1


# --- planted bugs ----------------------------------------------------------------------------------------------------


def test_a_flag_that_is_set_before_the_copy_is_complete_is_reported():
    copy, flag = push(USUAL, 0)
    with pytest.raises((UninitializedRead, DataRace)) as raised:
        run(USUAL, 0, (ConcurrentStream("GPU 1 to GPU 0", (flag, copy)),))
    assert "cp_async_bulk_tensor.cuh" in str(raised.value.location)
    assert "operation 1 of stream 'GPU 1 to GPU 0'" in str(raised.value)


def test_a_flag_of_another_stream_says_nothing_of_the_copy():
    copy, flag = push(USUAL, 0)
    streams = ConcurrentStream("copies", (copy,)), ConcurrentStream("flags", (flag,))
    with pytest.raises((UninitializedRead, DataRace)):
        run(USUAL, 0, streams)
    with pytest.raises(DataRace, match=r"operation 0 of stream 'copies', beside the launch, wrote it") as raised:
        run(USUAL, 0, streams, schedule="earliest")  # the copy is over, but nothing says so
    assert "ld.acquire.sys" in raised.value.missing


IMPATIENT = replace(
    USUAL,
    before="""
#include "tile/global_barrier.cuh"
#define wait_for_stream_flag(flag) if (shard != 1) wait_for_stream_flag(flag)  // BUG
""",
)


def test_a_producer_that_does_not_wait_for_one_shard_is_reported():
    with pytest.raises((UninitializedRead, DataRace)) as raised:
        run(IMPATIENT, 0)
    assert "cp_async_bulk_tensor.cuh" in str(raised.value.location)
    assert "operation 0 of stream 'GPU 1 to GPU 0'" in str(raised.value)
    with pytest.raises(DataRace):  # the rows are there by chance
        run(IMPATIENT, 0, schedule="earliest")
    assert run(IMPATIENT, 1)[0] <= 1, "GPU 1 has that shard"


def test_rows_that_are_overwritten_while_they_are_read_are_reported():
    copy, flag = push(USUAL, 0)
    with pytest.raises(DataRace, match="its stream has not waited for what the launch does"):
        run(USUAL, 0, (ConcurrentStream("GPU 1 to GPU 0", (copy, flag, copy)),))


def test_a_flag_that_nobody_sets_is_a_deadlock():
    copy, _ = push(USUAL, 0)
    with pytest.raises(Deadlock, match="nothing left to do") as raised:
        run(USUAL, 0, (ConcurrentStream("GPU 1 to GPU 0", (copy, StreamFlag(SHARD_FLAGS, 0))),))
    assert "global_barrier.cuh" in str(raised.value.location)


# --- what it takes ---------------------------------------------------------------------------------------------------


def test_plans_are_those_of_the_plain_gemm_where_these_can_gather():
    problem = replace(USUAL, m=8192, n=4096, k=14336).problem
    plan = GatheredPlan.of(problem, Shards(2, 4096, 0), REFERENCE)
    assert option.reason_against(problem, dict(plan.config)) is None
    values = dict(plan.kernel.instance.values)
    assert values["GATHERED_A"] is True
    assert plan.kernel.params.offsets["first_shard"] == plan.kernel.params.offsets["shard_rows"] + 4


def test_a_plan_like_a_plain_one_adds_in_the_same_order():
    shards, large = Shards(2, 4096, 0), replace(USUAL, m=8192, n=4096, k=14336).problem
    config = dict(GatheredPlan.of(large, shards, REFERENCE).config)
    plain = Plan(large, RUNGS["wgmma-final"], config, "given", REFERENCE)
    like = GatheredPlan.like(plain, shards)
    assert dict(like.config) == config
    swapped = Plan(large, plain.rung, {**plain.config, "ALONG_N": 1}, "given", REFERENCE)
    assert dict(GatheredPlan.like(swapped, shards).config)["ALONG_N"] == 0
    for change in ({"SPLITS": 2, "OVERLAP": 0}, {"STREAM": 1, "OVERLAP": 0}):
        split = Plan(large, plain.rung, {**plain.config, **change}, "given", REFERENCE)
        assert GatheredPlan.like(split, shards) is None
    assert GatheredPlan.like(make_plan(USUAL.problem, rung="mma-final", device=REFERENCE), shards) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"STREAM": 1}, "STREAM"), ({"SWAP": 1}, "SWAP"), ({"ALONG_N": 1}, "ALONG_N"), ({"SPLITS": 2}, "SPLITS")],
)
def test_other_schedules_are_refused(changes, reason):
    config = small("wgmma-final", "bfloat16", **dict(USUAL.config) | changes)
    assert option.reason_against(USUAL.problem, config).startswith(f"{reason} is 1" if reason != "SPLITS" else "SPLITS")
    with pytest.raises(UnsupportedError, match=reason):
        GatheredPlan.of(USUAL.problem, Shards(2, 96, 0), REFERENCE, config)


def test_misaligned_rows_are_refused():
    problem = USUAL.problem
    problem = replace(problem, a=replace(problem.a, alignment_bytes=8))
    with pytest.raises(UnsupportedError, match="gather it first"):
        GatheredPlan.of(problem, Shards(2, 96, 0), REFERENCE)
