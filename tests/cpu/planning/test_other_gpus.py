"""Plans for GPUs with fewer SMs than the reference: nothing is refused, and CTAs that wait for each other all run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from covering import ALL, examples
from random_problems import random_problem
from warptile.bench.protocol.suites import SUITES, SuiteRow
from warptile.bench.protocol.workloads import to_problem
from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES
from warptile.planning.plan import Plan, illegal, make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.runtime.execute import planned
from wgmma_product import product

H20, PCIE, H200 = (KNOWN[name] for name in ("NVIDIA H20", "NVIDIA H100 PCIe", "NVIDIA H200"))
FINAL = RUNGS["wgmma-final"]


@dataclass(frozen=True)
class StubBackend:
    """A GPU as plans see it; ``gpu`` None leaves tuned configurations out."""

    device: DeviceLimits
    gpu: str | None


PLACES = tuple(StubBackend(device, gpu) for device in (PCIE, H20, H200) for gpu in (device.name, None))
ROWS = tuple(row for rows in SUITES.values() for row in rows)


def assert_sound(plan: Plan, device: DeviceLimits) -> None:
    """The plan is legal on the device, and its CTAs are co-resident where they wait for each other."""
    assert plan.device.multiprocessors == device.multiprocessors
    assert illegal(plan.rung, plan.problem, plan.config, plan.device) is None
    kernel = plan.kernel
    if (kernel.waits and any(workspace.zero for workspace in kernel.kernel_workspaces)) or (
        math.prod(kernel.cluster) > plan.config.get("CM", 1) * plan.config.get("CN", 1) and "SPLITS" in plan.config
    ):
        assert kernel.ctas <= plan.device.co_resident_ctas(math.prod(kernel.cluster))


def cases() -> list[tuple[SuiteRow, StubBackend]]:
    """Every row on one GPU in an ordinary run, on each in a long one."""
    return [(row, place) for i, row in enumerate(ROWS) for j, place in enumerate(PLACES) if ALL or i % len(PLACES) == j]


FEW = ("simt-split-k", "simt-gemv")
RUNGS_OF_SUITE = {
    "float32": ("wgmma-split", "wgmma-bf16x6", "simt-warptile", *FEW),
    "float64": ("mma-final", "mma-specialized", "mma-split-k", *FEW),
    "batches": (
        "wgmma-final", "wgmma-split", "wgmma-bf16x6", "mma-split-k", "mma-specialized", "mma-unaligned", "mma-final",
        *FEW,
    ),
}  # fmt: skip
"""What plans take, where that is not wgmma-final."""


@pytest.mark.parametrize("suite", SUITES)
def test_every_row_of_the_suites_has_a_plan(suite: str) -> None:
    for row, place in cases():
        if row in SUITES[suite]:
            plan = planned(to_problem(row.problem, offset=row.offset), place, max_sms=row.max_sms)
            taken = ("wgmma-sparse",) if row.problem.sparse else RUNGS_OF_SUITE.get(suite, ("wgmma-final",))
            assert plan.rung.name in taken, row.name
            assert_sound(plan, place.device)


def bf16(m: int, n: int, k: int) -> Problem:
    element = DTYPES["bfloat16"]
    return Problem.dense(m, n, k, element, out=element, accumulator=DTYPES["float32"], b_major="col")


HARD = {
    (16, 10240, 8192): (16, 136, 200),
    (1, 28672, 4096): (1, 136, 264),
    (4096, 4096, 4095): (264, 264, 199),
    (512, 512, 16384): (136, 136, 520),
}
"""Problems that split K, repack, or leave the last wave nearly empty, each with a small stand-in that is emulated."""


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.device.multiprocessors}-{place.gpu is not None}")
@pytest.mark.parametrize("shape", HARD)
def test_skinny_deep_and_unaligned_problems_have_plans(shape: tuple[int, int, int], place: StubBackend) -> None:
    assert_sound(planned(bf16(*shape), place), place.device)


@pytest.mark.parametrize(("shape", "stand_in"), HARD.items())
def test_what_is_planned_for_fewer_sms_is_right(shape: tuple[int, int, int], stand_in: tuple[int, int, int]) -> None:
    full = planned(bf16(*shape), StubBackend(PCIE, PCIE.name))
    small = bf16(*stand_in)
    config = FINAL.adapt(small, full.config, (*shape, 1), PCIE, PCIE)
    result = product(
        "wgmma-final", *stand_in, dtype="bfloat16", out="bfloat16", b_major="col", config=config, device=PCIE
    )
    assert result.error_ratio <= 1
    assert result.guards_kept
    same = ("BM", "BN", "SWAP", "CM", "CN", "CONSUMERS")
    assert {key: result.plan.config[key] for key in same} == {key: full.config[key] for key in same}


@pytest.mark.parametrize("device", [H20, PCIE], ids=lambda device: str(device.multiprocessors))
def test_what_was_tuned_on_other_sms_is_not_taken(device: DeviceLimits) -> None:
    for row in SUITES["small"]:
        plan = planned(to_problem(row.problem), StubBackend(device, device.name))
        assert plan.origin == "predicted", row.name


@pytest.mark.parametrize("device", [H20, PCIE, H200], ids=lambda device: str(device.multiprocessors))
@pytest.mark.parametrize("seed", range(examples(24)))
def test_a_plan_for_any_problem_is_legal_and_uses_no_more_sms_than_there_are(device: DeviceLimits, seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    plan = planned(problem, StubBackend(device, device.name))
    assert_sound(plan, device)
    if plan.rung is FINAL:
        assert 1 <= plan.config["SMS"] <= device.multiprocessors
        assert plan.config["SPLITS"] * plan.config["CM"] * plan.config["CN"] <= device.multiprocessors
        assert 0 < plan.prediction.time_ms < 1e3


def test_the_error_of_predictions_is_said_where_it_was_measured():
    given = Problem.dense(512, 520, 1032, DTYPES["bfloat16"], out=DTYPES["bfloat16"], accumulator=DTYPES["float32"])
    for device in (REFERENCE, KNOWN["NVIDIA H20"]):
        text = make_plan(given, device=device).explain()
        assert "on an NVIDIA H200" in text, "what the model is fitted to is said on every GPU"
        assert ("nine in ten are within" in text) is (device is REFERENCE)
