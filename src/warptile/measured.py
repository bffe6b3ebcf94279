"""Recorded results of the ladder's rungs: what `warptile ladder` shows beside its own figures.

They are in the package's ``data/measured.json``, a line for each result, which `make docs` makes from the records
of a checkout. Nothing here reads a record: an installed package has none.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from warptile.decoding import decoded
from warptile.problem import Problem

SCHEMA = "warptile.measured/2"
FILE = Path(__file__).resolve().parent / "data" / "measured.json"


class MeasuredProblem(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A product: extents, types, and how A and B are stored."""

    m: int
    n: int
    k: int
    dtype: str
    accumulator: str
    out: str
    a_major: str
    b_major: str
    sparse: bool

    @staticmethod
    def of(problem: Problem, size: tuple[int, int, int]) -> MeasuredProblem:
        """``problem`` with other extents."""
        a, b = problem.a, problem.b
        types = a.dtype.name, problem.accumulator.name, problem.d.dtype.name
        return MeasuredProblem(*size, *types, a.major, b.major, a.sparse)


class MeasuredTraffic(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Bytes that a rung moves in one launch, by memory level: None where they are neither counted nor predicted.

    Attributes:
        shared: through the data path that L1 and shared memory have in common, in all SMs; a wavefront is 128 bytes.
        l2: between L2 and the SMs; what several SMs read counts at each.
        dram: read and written.
        predicted: levels whose bytes are predicted, and not counted by Nsight Compute.
    """

    shared: float | None
    l2: float | None
    dram: float | None
    predicted: tuple[str, ...]

    def bytes_at(self, level: str) -> float | None:
        """Bytes of the level of that name."""
        found: float | None = getattr(self, level)
        return found


class MeasuredRung(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One rung on one problem.

    Attributes:
        rung: its name.
        problem: what was computed.
        time_ms: median of one launch.
        tflops: of ``time_ms``.
        of_cublas: speed relative to cuBLASLt's fastest algorithm in the same rounds: the median,
        of_cublas_low: the smallest,
        of_cublas_high: and the largest of all rounds.
        cublas_tflops: of cuBLASLt.
        source: index of the record in `MeasuredSummary.sources`.
        sm_clock_mhz: median SM clock meanwhile, or None where it was not recorded.
        traffic: the bytes it moves, or None where its configuration is not known well enough.
    """

    rung: str
    problem: MeasuredProblem
    time_ms: float
    tflops: float
    of_cublas: float
    of_cublas_low: float
    of_cublas_high: float
    cublas_tflops: float
    source: int
    sm_clock_mhz: float | None = None
    traffic: MeasuredTraffic | None = None


class MeasuredSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record that results come from: its name, the GPU, the day, and the regime (``"sustained"`` at the power
    limit)."""

    record: str
    gpu: str
    date: str
    regime: str


class MeasuredSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds."""

    schema: str
    sources: tuple[MeasuredSource, ...]
    results: tuple[MeasuredRung, ...]


def encode(summary: MeasuredSummary) -> str:
    """The text of the file: a line for each result, so that a diff shows which one changed."""
    head = msgspec.json.encode(msgspec.structs.replace(summary, results=())).removesuffix(b"[]}")
    return (head + b"[\n" + b",\n".join(map(msgspec.json.encode, summary.results)) + b"\n]}\n").decode()


@cache
def summary() -> MeasuredSummary:
    """The results that ship with the package."""
    return decoded(FILE.read_bytes(), MeasuredSummary)


@cache
def _by_rung_and_problem() -> dict[tuple[str, MeasuredProblem], MeasuredRung]:
    return {(result.rung, result.problem): result for result in summary().results}


def find(rung: str, problem: Problem, sizes: tuple[tuple[int, int, int], ...]) -> dict[str, str | int | float] | None:
    """The recorded result of a rung on ``problem``, at the first of some sizes that was measured.

    Returns:
        The extents, the figures of `MeasuredRung` and the fields of `MeasuredSource`, by name; None when the rung was
        not measured in these types and layouts.
    """
    for size in sizes:
        found = _by_rung_and_problem().get((rung, MeasuredProblem.of(problem, size)))
        if found is not None:
            m, n, k = size
            figures = {
                name: getattr(found, name)
                for name in ("time_ms", "tflops", "of_cublas", "of_cublas_low", "of_cublas_high", "cublas_tflops")
            }
            return {"m": m, "n": n, "k": k, **figures, **msgspec.structs.asdict(summary().sources[found.source])}
    return None
