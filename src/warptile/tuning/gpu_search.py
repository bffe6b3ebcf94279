"""A search on the current GPU: configurations run as they do at work, checked once, timed against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from warptile.codegen.nvrtc import compiler_version
from warptile.device import DeviceLimits
from warptile.errors import DeviceError
from warptile.planning.plan import Plan, config_text, make_plan, split_by_legality
from warptile.planning.tuned_table import Table
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.rung import Rung
from warptile.tuning.search import STAGES, Candidates, Progress, SearchOutcome, Stage, compile_all, search, select

if TYPE_CHECKING:
    from warptile.gpu.timing import Runner

CHECKED_ROWS = 64
"""Rows of D that are compared with a float64 reference for each configuration; every element must have been written."""


WARM_UP_MS = 600.0
"""How long the incumbent runs before anything is timed against it: the chip is then at its power limit."""


class GpuMeter:
    """Runs and times configurations of one rung on the current GPU.

    With an incumbent, each configuration runs right behind it and for as long, and its time is the ratio of the two,
    times the incumbent's first: all are compared on a chip that is as hot and as slow as it is at work.
    """

    def __init__(
        self, rung: Rung, problem: Problem, device: DeviceLimits, seed: int = 0, *, incumbent: Config | None = None
    ) -> None:
        import numpy as np

        from warptile.gpu import driver
        from warptile.runtime import device_product
        from warptile.verify.reference import products_per_rounding

        self._rung = rung
        self._problem = problem
        self._device = device
        self._product = device_product.DeviceProduct(problem, seed=seed)
        rows = np.random.default_rng(seed).choice(problem.m, min(CHECKED_ROWS, problem.m), replace=False)
        self._rows = np.sort(rows)
        together = products_per_rounding(rung.family, problem.a.dtype)
        self._expected = self._product.reference(self._rows, products_per_rounding=together)
        self._plans: dict[str, Plan] = {}
        self._stream = driver.Stream()
        self._runners: dict[str, tuple[Runner, float]] = {}
        self._incumbent = incumbent
        self._incumbent_ms: float | None = None

    def _plan(self, config: Config) -> Plan:
        text = config_text(config)
        if text not in self._plans:
            self._plans[text] = make_plan(self._problem, rung=self._rung.name, config=config, device=self._device)
        return self._plans[text]

    def check(self, config: Config) -> str | None:
        """As `Meter.check`: some rows against a reference, all elements for having been written, and guard bands."""
        return self._product.check(self._plan(config), self._expected, self._rows).wrong

    def time_ms(self, config: Config, window_ms: float) -> float:
        """As `Meter.time_ms`, over operand sets that L2 cannot keep."""
        if self._incumbent is None:
            return self._run_ms(config, window_ms)
        if self._incumbent_ms is None:
            self._run_ms(self._incumbent, WARM_UP_MS)
            self._incumbent_ms = self._run_ms(self._incumbent, window_ms)
        beside_ms = self._run_ms(self._incumbent, window_ms)
        return self._run_ms(config, window_ms) / beside_ms * self._incumbent_ms

    def _run_ms(self, config: Config, window_ms: float) -> float:
        """Milliseconds of one launch over a window."""
        from warptile.runtime.device_product import runner_for

        text = config_text(config)
        if text not in self._runners:
            self._runners[text] = runner_for(self._product.candidate(self._plan(config)), self._stream.handle)
        runner, one_ms = self._runners[text]
        elapsed_ms, launches = runner.run(max(1, round(window_ms / one_ms)))
        return elapsed_ms / launches

    def lost(self, error: BaseException) -> bool:
        """As `Meter.lost`: an error of the GPU itself, after which its context answers nothing."""
        return isinstance(error, DeviceError) and error.context_lost

    def close(self) -> None:
        """Give the GPU's memory back."""
        self._product.close()


def tune_on_gpu(
    rung: Rung,
    problem: Problem,
    *,
    table: Table | None = None,
    configs: Sequence[Config] | None = None,
    always: Sequence[Config] = (),
    limit: int | None = None,
    fresh: bool = False,
    stages: Sequence[Stage] = STAGES,
    processes: int | None = None,
    beside_first: bool = False,
    report: Callable[[Progress], None] = lambda progress: None,
) -> SearchOutcome:
    """Find the fastest configuration on the current GPU, from what is known already and by measuring the rest.

    Args:
        rung: whose configurations.
        problem: contiguous, without C.
        table: where results are kept; by default this GPU model's.
        configs: measure these (the legal ones of them) instead of the rung's candidates.
        always: configurations that are measured whatever is predicted for them.
        limit: measure at most so many, the best predictions.
        fresh: measure everything again.
        stages: the stages of the search.
        processes: compiler processes; by default one for each core.
        beside_first: each configuration is timed right behind the first of them, on a chip at its power limit.
        report: called as the search goes on.

    Raises:
        NoDeviceError: there is no GPU.
        UnsupportedError: no configuration is legal.
        DeviceError: the GPU's context was lost; what was measured before is kept.
    """
    from warptile.gpu import driver

    driver.enter()
    device = driver.device_info()
    table = table or Table(device.name)
    selected = select(rung, problem, device.limits, limit=limit, always=always)
    if configs is not None:
        choices = [(rung, config) for config in configs]
        legal, refused = split_by_legality(choices, problem, device.limits)
        selected = Candidates(tuple(config for _, config in legal), len(choices), len(refused), 0)
    compile_all(rung, problem, selected.configs, device.limits, processes=processes, report=report)
    incumbent = selected.configs[0] if beside_first and selected.configs else None
    meter = GpuMeter(rung, problem, device.limits, incumbent=incumbent)
    try:
        return search(
            rung, problem, selected, meter, table,
            compiler=compiler_version(), stages=stages, fresh=fresh, report=report,
        )  # fmt: skip
    finally:
        meter.close()
