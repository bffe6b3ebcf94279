"""What tunes and measures works on a real GPU: small problems, one of everything."""

import pytest

from warptile.bench.protocol.environment import Sampler
from warptile.bench.protocol.workloads import F16_F32, to_problem
from warptile.gpu import driver
from warptile.planning.plan import make_plan
from warptile.planning.tuned_table import Table, config_for
from warptile.rungs import RUNGS
from warptile.runtime.device_product import DeviceProduct, runner_for
from warptile.tuning.gpu_search import tune_on_gpu
from warptile.tuning.search import Stage
from warptile.verify.reference import products_per_rounding

pytestmark = pytest.mark.gpu
KEY = F16_F32.key(512, 512, 512)
STAGES = (Stage(100, 1.0), Stage(2, 5.0, rounds=2))


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_passes_the_check_with_a_c(name):
    rung = RUNGS[name]
    from warptile.bench.protocol.workloads import groups_of

    key = groups_of(rung, "sm_90a")[0].key(200, 168, 88, sparse=rung.sparse)
    problem = to_problem(key, with_c=True)
    product = DeviceProduct(problem, sets=1, alpha=0.5, beta=-1.5)
    plan = make_plan(problem, rung=name, arch=product.device.arch)
    expected = product.reference(products_per_rounding=products_per_rounding(rung.family, problem.a.dtype))
    assert product.check(plan, expected).wrong is None
    product.close()


def test_a_launch_has_a_plausible_time():
    product = DeviceProduct(to_problem(KEY))
    plan = make_plan(product.problem, rung="wmma-padded", arch=product.device.arch)
    with driver.Stream() as stream:
        runner, one_ms = runner_for(product.candidate(plan), stream.handle)
        assert runner.method == "graph"
        elapsed_ms, launches = runner.run(100)
        assert 1e-3 < elapsed_ms / launches < 1.0
        assert elapsed_ms / launches == pytest.approx(one_ms, rel=1.0)
    product.close()


def test_tuning_keeps_a_winner_that_a_plan_then_takes(tmp_path):
    rung, problem = RUNGS["wmma-final"], to_problem(KEY)
    table = Table(driver.device_info().name, tmp_path)
    outcome = tune_on_gpu(rung, problem, table=table, limit=3, stages=STAGES, processes=4)
    assert outcome.best is not None
    assert not outcome.reused
    assert config_for(rung, problem, table.gpu, tmp_path) == outcome.best.config
    assert tune_on_gpu(rung, problem, table=table, limit=3, stages=STAGES, processes=4).reused


def test_a_cell_of_the_sweep_has_its_rounds_and_its_baseline(tmp_path):
    pytest.importorskip("nvmath", reason="nvmath-python is not installed")
    from warptile.bench.campaign.ladder_sweep import Bench
    from warptile.gpu.timing import Schedule

    with Sampler() as sampler:
        bench = Bench(sampler, schedule=Schedule("sustained", 2, turn_ms=20.0, warm_up_ms=5.0), tuned_folder=tmp_path)
        baseline = bench.baseline(KEY)
        cell = bench.cell(RUNGS["wmma-final"], KEY, baseline)
        bench.close()
    assert cell.failed is None
    assert len(cell.rounds) == 2
    assert 0.01 < cell.ratio.median < 1.5
    assert baseline.best_ms <= (baseline.first_ms or float("inf"))
    assert cell.samples is not None
