"""The parts that records are made of: a rung on a problem, a check, counters of a launch, one search.

Fields that newer measurements brought have defaults, so that older records (`warptile.bench.protocol.records`) stay
readable. A record leaves out what has its default, so a default never changes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping

import msgspec

from warptile.planning.tuned_table import ProblemClass


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Smallest, middle and largest of some samples."""

    low: float
    median: float
    high: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """The spread of at least one value, none of which may be NaN."""
        ordered = sorted(values)
        assert ordered, "a spread needs at least one value"
        assert not any(math.isnan(value) for value in ordered), "NaN has no place in a spread"
        return Spread(ordered[0], statistics.median(ordered), ordered[-1])


class Samples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Clocks, power and temperature while something ran, as the driver reported them."""

    sm_clock_mhz: Spread
    memory_clock_mhz: Spread
    power_w: Spread
    temperature_c: Spread
    count: int


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine and the software of a measurement. ``samples`` covers the whole run. Where a ``processor`` was
    measured it is named, and no GPU is."""

    gpu: str
    driver: str
    cuda: str
    nvrtc: str
    baseline_library: str | None = None
    python: str
    power_cap_w: float | None = None
    samples: Samples | None = None
    processor: str | None = None


class ProblemKey(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A GEMM problem.

    Attributes:
        m: rows of A and D.
        n: columns of B and D.
        k: columns of A, rows of B.
        dtype: type of A and B.
        accumulator: type that is accumulated in.
        out: type of D.
        b_major: ``"row"`` where B is stored as [K, N], ``"col"`` as [N, K].
        a_major: ``"row"`` where A is stored as [M, K], ``"col"`` as [K, M].
        sparse: whether A is 2:4 sparse.
        batch: GEMMs in a launch, whose matrices are stored one after the other.
    """

    m: int
    n: int
    k: int
    dtype: str
    accumulator: str
    out: str
    b_major: str = "row"
    a_major: str = "row"
    sparse: bool = False
    batch: int = 1

    @property
    def flops(self) -> float:
        """Operations: 2 m n k of each product, those with a sparse operand's zeros among them."""
        return 2.0 * self.m * self.n * self.k * self.batch

    @property
    def shape(self) -> str:
        """The extents as people write them: ``4096^3``, ``1000x1544x808`` or ``64 of 1024^3``."""
        one = f"{self.m}^3" if self.m == self.n == self.k else f"{self.m}x{self.n}x{self.k}"
        return one if self.batch == 1 else f"{self.batch} of {one}"

    def tflops(self, time_ms: float) -> float:
        """TFLOP/s (TOP/s for integers) of one product in ``time_ms``."""
        return self.flops / time_ms / 1e9


class RecordedPrediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prediction of `warptile.planning.cost_bounds` before the measurement, as a record keeps it."""

    time_ms: float
    bound: str
    tflops: float
    arch: str


class RecordedResources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Resources of a compiled kernel as a record keeps them: registers a thread, shared memory a CTA, bytes spilled."""

    registers: int
    shared_bytes: int
    spill_bytes: int


class Round(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One round of an interleaved comparison: milliseconds of one launch of the candidate and of the baseline."""

    time_ms: float
    baseline_ms: float


class LadderCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung on one problem, and the baseline in the same rounds.

    Attributes:
        rung: name of the rung.
        problem: what was computed.
        config: the rung's tunables.
        rounds: every round, in order; empty when it was not run.
        launches: launches of the candidate that were timed, in all rounds.
        baseline_launches: launches of the baseline that were timed.
        method: ``"events"`` or ``"graph"`` (replay).
        baseline: which algorithm of the vendor's library was the best.
        first_heuristic_ms: the vendor's first choice on the same problem, one launch.
        error_ratio: largest error over its bound in the check before the measurement; above 1 is wrong.
        tuned: whether the configuration comes from a search.
        note: why there are fewer rounds than usual, or none, or None.
        failed: what went wrong, or None.
    """

    rung: str
    problem: ProblemKey
    config: dict[str, int]
    rounds: tuple[Round, ...] = ()
    launches: int = 0
    baseline_launches: int = 0
    method: str | None = None
    baseline: str | None = None
    first_heuristic_ms: float | None = None
    error_ratio: float | None = None
    resources: RecordedResources | None = None
    predicted: RecordedPrediction | None = None
    samples: Samples | None = None
    tuned: bool = False
    note: str | None = None
    failed: str | None = None

    @property
    def time_ms(self) -> float | None:
        """Median over the rounds, or None when there are none."""
        return statistics.median(r.time_ms for r in self.rounds) if self.rounds else None

    @property
    def tflops(self) -> float | None:
        """TFLOP/s of the median round."""
        time_ms = self.time_ms
        return None if time_ms is None else self.problem.tflops(time_ms)

    @property
    def baseline_ms(self) -> float | None:
        """Median time of the baseline in the same rounds."""
        return statistics.median(r.baseline_ms for r in self.rounds) if self.rounds else None

    @property
    def baseline_tflops(self) -> float | None:
        """TFLOP/s of the baseline's median round."""
        time_ms = self.baseline_ms
        return None if time_ms is None else self.problem.tflops(time_ms)

    @property
    def ratio(self) -> Spread | None:
        """Speed relative to the baseline, round by round: 1.0 is as fast, 2.0 is twice as fast."""
        return Spread.of(r.baseline_ms / r.time_ms for r in self.rounds) if self.rounds else None


class BaselineTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the vendor's library does on one problem: its best and first heuristic, and torch.matmul."""

    problem: ProblemKey
    best_ms: float
    first_ms: float | None
    best: str
    heuristics: int
    best_index: int
    torch_ms: float | None = None
    notes: str = ""


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung's result on one problem against a float64 reference. ``error_ratio`` above 1 (or None) is wrong.

    ``offset`` is the distance of the ``displaced`` matrices, in elements, from where memory is aligned to 256 bytes;
    ``padding`` elements separate lines.
    """

    rung: str
    problem: ProblemKey
    config: dict[str, int]
    error_ratio: float | None
    guards_intact: bool
    unwritten: int
    alpha: float = 1.0
    beta: float = 0.0
    failed: str | None = None
    offset: int = 0
    displaced: str = "ABCD"
    padding: int = 0

    @property
    def correct(self) -> bool:
        """Everything written, nothing beyond it, and the error within its bound."""
        ratio = self.error_ratio
        return self.failed is None and self.guards_intact and self.unwritten == 0 and ratio is not None and ratio <= 1.0


SHARED_OPCODES = {"load": ("LDS", "LDSM"), "store": ("STS", "STSM"), "async_copy": ("LDGSTS",)}
"""Machine instructions that access shared memory, by the emulator's name for them."""


def shared_counters(opcodes: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The counters of shared memory under the names of the API's table, from those of machine instructions."""
    found: dict[str, float] = {}
    for kind, names in SHARED_OPCODES.items():
        wavefronts, ideal = (
            sum(opcodes.get(name, {}).get(column, 0.0) for name in names)
            for column in ("shared_wavefronts", "shared_wavefronts_ideal")
        )
        found[f"shared_{kind}_wavefronts"] = wavefronts
        found[f"shared_{kind}_wavefronts_ideal"] = ideal
        found[f"shared_{kind}_conflict_ratio"] = wavefronts / ideal if ideal else 1.0
    return found


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Nsight Compute counted in one launch.

    Attributes:
        counters: under the names of the API's counter table. Those of shared memory are made from ``by_opcode``
            whenever a profile is read: earlier records count copies by ``cp.async`` among the stores.
        by_opcode: counters of the source page, added up by machine instruction (``LDS``, ``HMMA``, ...).
        stalls: share of warp samples by reason, largest first.
        registers: of a thread.
        occupancy: warps that were active, in percent of what an SM holds.
        metrics: Nsight Compute's own names and values, as far as they are kept; no table takes a figure from them.
        failed: why there are no counters, or None.
    """

    rung: str
    problem: ProblemKey
    config: dict[str, int]
    counters: dict[str, float]
    by_opcode: dict[str, dict[str, float]]
    stalls: dict[str, float]
    registers: int
    metrics: dict[str, float] = {}
    occupancy: float | None = None
    failed: str | None = None

    def __post_init__(self) -> None:
        if self.by_opcode:
            msgspec.structs.force_setattr(self, "counters", {**self.counters, **shared_counters(self.by_opcode)})

    @property
    def top_stall(self) -> str | None:
        """The reason most warp samples gave, or None when none was collected."""
        return max(self.stalls, key=lambda reason: self.stalls[reason]) if self.stalls else None


class RegimeTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Milliseconds of one launch, round by round, in one regime; the baseline's in the same rounds, if there is one."""

    regime: str
    rounds_ms: tuple[float, ...]
    baseline_ms: tuple[float, ...] = ()


class TypeCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung in one combination of types and majors.

    Attributes:
        rung: name of the rung.
        problem: what was computed.
        config: the rung's tunables.
        times: one entry a regime.
        baseline: which algorithm of the vendor's library was the best, or None.
        no_baseline: why there is none.
        error_ratio: largest error over its bound, on the rows that were compared.
        error: largest error against float64 over the root mean square of the result, the operands taken as they are.
        drawn_error: the same against the product of the numbers before they were rounded to the operands' type.
        resources: of the compiled kernel.
        samples: clocks and power while it was measured.
        tuned: whether the configuration comes from a search.
        failed: what went wrong, or None.
        copied_bytes: read and written by launches before the product, which are part of the time.
        copies_ms: time of these launches alone, sustained.
    """

    rung: str
    problem: ProblemKey
    config: dict[str, int]
    times: tuple[RegimeTimes, ...] = ()
    baseline: str | None = None
    no_baseline: str = ""
    error_ratio: float | None = None
    error: float | None = None
    drawn_error: float | None = None
    resources: RecordedResources | None = None
    samples: Samples | None = None
    tuned: bool = False
    failed: str | None = None
    copied_bytes: int = 0
    copies_ms: float | None = None

    def timed(self, regime: str) -> RegimeTimes | None:
        """The rounds of a regime, or None."""
        return next((each for each in self.times if each.regime == regime and each.rounds_ms), None)

    def tflops(self, regime: str) -> float | None:
        """TFLOP/s (TOP/s) of the median round of a regime, zeros of a sparse operand counted."""
        found = self.timed(regime)
        return None if found is None else self.problem.tflops(statistics.median(found.rounds_ms))

    def of_baseline(self, regime: str) -> float | None:
        """Speed relative to the baseline: the median of the rounds' ratios."""
        found = self.timed(regime)
        if found is None or not found.baseline_ms:
            return None
        return statistics.median(base / own for own, base in zip(found.rounds_ms, found.baseline_ms, strict=True))


class UnalignedCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung on a misaligned problem, with an aligned neighbour and the baseline in the same rounds.

    Attributes:
        rung: name of the rung.
        problem: what was computed.
        offset: elements from where memory is aligned to the beginning of each matrix.
        config: the rung's tunables.
        neighbour: the aligned problem.
        neighbour_config: the rung's tunables there.
        rounds_ms: milliseconds of one launch, round by round, repacking passes included.
        neighbour_ms: the same of the neighbour.
        baseline_ms: the same of the vendor library's best on the problem itself.
        baseline: which algorithm that was, or None.
        no_baseline: why there is none.
        copied_bytes: read and written by launches before the product.
        copies_ms: time of these launches alone.
        error_ratio: largest error over its bound, on the rows that were compared.
        samples: clocks and power while it was measured.
        failed: what went wrong, or None.
    """

    rung: str
    problem: ProblemKey
    offset: int
    config: dict[str, int]
    neighbour: ProblemKey
    neighbour_config: dict[str, int] = {}
    rounds_ms: tuple[float, ...] = ()
    neighbour_ms: tuple[float, ...] = ()
    baseline_ms: tuple[float, ...] = ()
    baseline: str | None = None
    no_baseline: str = ""
    copied_bytes: int = 0
    copies_ms: float | None = None
    error_ratio: float | None = None
    samples: Samples | None = None
    failed: str | None = None

    @property
    def tflops(self) -> float | None:
        """TFLOP/s of the median round."""
        return self.problem.tflops(statistics.median(self.rounds_ms)) if self.rounds_ms else None

    @property
    def of_neighbour(self) -> float | None:
        """TFLOP/s over those of the aligned neighbour, median of the rounds."""
        pairs = zip(self.rounds_ms, self.neighbour_ms, strict=True)
        share = self.problem.flops / self.neighbour.flops
        return statistics.median(share * other / own for own, other in pairs) if self.rounds_ms else None

    @property
    def of_baseline(self) -> float | None:
        """Speed relative to the baseline, median of the rounds."""
        if not self.rounds_ms or not self.baseline_ms:
            return None
        return statistics.median(base / own for own, base in zip(self.rounds_ms, self.baseline_ms, strict=True))


class Sanitized(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One compute-sanitizer tool over one rung. ``errors`` None means that it did not finish."""

    rung: str
    tool: str
    problems: tuple[ProblemKey, ...]
    errors: int | None
    messages: tuple[str, ...] = ()


class Tried(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration that the tuner measured: milliseconds of one launch in its last stage, or why it failed."""

    config: dict[str, int]
    stage: int
    time_ms: float | None
    failed: str | None = None


class Tuning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search over one rung's configurations for one problem, best first."""

    rung: str
    problem: ProblemKey
    tried: tuple[Tried, ...]
    candidates: int
    illegal: int
    best_rounds_ms: tuple[float, ...] = ()


class Attempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration in a short search, as one line: milliseconds of one launch in the brief look that all had, and
    round by round where it was among the best; or why it failed."""

    config: str
    brief_ms: float | None = None
    rounds_ms: tuple[float, ...] = ()
    failed: str | None = None


class Searched(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A short search over one rung's configurations for one problem, the best first."""

    rung: str
    source: str
    problem: ProblemClass
    tried: tuple[Attempt, ...]


class TimedConfig(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One configuration of a surveyed problem: its values in the order of the record's ``keys``, and microseconds of a
    launch in each round."""

    config: tuple[int, ...]
    rounds_us: tuple[float, ...]


class Surveyed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One problem of a survey: configurations in turns, the best first.

    Attributes:
        problem: what is computed.
        planned: the configuration that a plan took when it was measured; none where it took another kernel.
        tried: what was timed.
        cublaslt_us: rounds of cuBLASLt's fastest algorithm; none where it takes no such problem.
        failed: what went wrong, with its configuration.
    """

    problem: ProblemClass
    planned: tuple[int, ...] = ()
    tried: tuple[TimedConfig, ...] = ()
    cublaslt_us: tuple[float, ...] = ()
    failed: tuple[str, ...] = ()
