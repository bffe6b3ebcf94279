"""Expected times on the GPU that they are calibrated to, on problems without a record."""

import math

import pytest

from warptile.bench.protocol.workloads import BF16, F16_F32, F32, to_problem
from warptile.device import REFERENCE
from warptile.expected.expected_time import expected_time
from warptile.gpu import driver
from warptile.gpu.timing import Schedule, compare
from warptile.planning.plan import make_plan
from warptile.rungs import RUNGS
from warptile.runtime.device_product import DeviceProduct

pytestmark = pytest.mark.gpu
SHORT = Schedule("sustained", rounds=2, turn_ms=100.0, warm_up_ms=150.0)
SHAPE = (3072, 2560, 4096)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("simt-warptile", F32),
        ("wmma-shared", F16_F32),
        ("wmma-multistage", F16_F32),
        ("mma-swizzled", F16_F32),
        ("mma-final", F16_F32),
        ("wgmma-tma", BF16),
        ("wgmma-persistent", BF16),
        ("wgmma-overlap", BF16),
        ("wgmma-final", BF16),
    ],
)
def test_a_shape_without_record_takes_about_as_long_as_expected(name, group):
    if driver.device_info().name != REFERENCE.name:
        pytest.skip(f"expected times are calibrated to {REFERENCE.name}")
    rung = RUNGS[name]
    problem = to_problem(group.key(*SHAPE, "col" if rung.family == "wgmma" else "row"))
    product = DeviceProduct(problem)
    plan = make_plan(problem, rung=name, arch=product.device.arch)
    timing = compare({name: product.candidate(plan)}, schedule=SHORT)[name]
    said = expected_time(rung, problem, plan.config)
    assert abs(math.log(timing.median_ms / said.time_ms)) < 0.3, (timing.median_ms, said)
    product.close()
