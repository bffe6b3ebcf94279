"""The launch that adds the partials of ranks in their order, in one pass over them: kernels/simt/rank_sum.cuh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from warptile.codegen.translation_unit import Source
from warptile.dtypes import DTYPES
from warptile.launch.params import Field, Params, Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.rungs.kernel_spec import Instance
from warptile.rungs.legality import ceil_div
from warptile.runtime.execute import KERNELS, GpuBackend

TYPES = ("bfloat16", "float16", "float32")
"""Types of partials and of sums."""

MOST_RANKS = 16
"""Partials of so many ranks are in the registers of a thread at once."""

THREADS, MOST_CTAS = 256, 2048
ACCESS_BYTES = 16
"""Of one load."""

SUM = "sum"
"""Name of the operand that is written."""


def partial_of(rank: int) -> str:
    """Name of the operand that is a rank's partial."""
    return f"partial{rank}"


@dataclass(frozen=True)
class RankSum:
    """A kernel that adds.

    Attributes:
        ranks: how many partials there are.
        partial, out: types of a partial and of the sum.
        aligned: all partials and the sum begin at multiples of 16 bytes, and their bytes are a multiple of 16.
    """

    ranks: int
    partial: str
    out: str
    aligned: bool

    def __post_init__(self) -> None:
        assert 1 <= self.ranks <= MOST_RANKS, self
        assert self.partial in TYPES, self
        assert self.out in TYPES, self

    @property
    def width(self) -> int:
        """Elements that a thread loads at once."""
        return ACCESS_BYTES * 8 // max(DTYPES[self.partial].bits, DTYPES[self.out].bits) if self.aligned else 1

    @cached_property
    def source(self) -> Source:
        """Its translation unit."""
        instance = Instance(
            "simt/rank_sum.cuh", "rank_sum",
            (("PARTIAL", DTYPES[self.partial].cuda), ("OUT", DTYPES[self.out].cuda)),
            (("RANKS", self.ranks), ("WIDTH", self.width), ("THREADS", THREADS)),
        )  # fmt: skip
        return Source(f'#include "{instance.file}"\n{instance.text}\n', instance.name_expression)

    def launch(self, entry: str, count: int, divisor: float = 1) -> LaunchSpec:
        """The launch of the compiled kernel: ``count`` elements of each partial, a divisor of 1 for a sum."""
        partials = [(name, Pointer(name)) for name in map(partial_of, range(self.ranks))]
        members: tuple[tuple[str, Field], ...] = (
            *partials, ("sum", Pointer(SUM)), ("count", Scalar("s64", count)), ("divisor", Scalar("f32", divisor)),
        )  # fmt: skip
        ctas = min(ceil_div(count, THREADS * self.width), MOST_CTAS)
        return LaunchSpec(entry, (ctas, 1, 1), (THREADS, 1, 1), (Params(members),))


def add_on_gpu(
    kind: RankSum, partials: Sequence[int], total: int, count: int, divisor: float, ordinal: int, stream: int
) -> None:
    """Queue the sum of partials on a stream of a GPU.

    Args:
        kind: what is added.
        partials: address of each rank's, in memory that the GPU reads.
        total: address of the sum.
        count: elements of each, without gaps between them.
        divisor: 1, or the number of ranks for an average.
        ordinal: the GPU.
        stream: the CUDA stream.
    """
    _launch(kind, ordinal, count, divisor)(stream, *partials, total)


@lru_cache(maxsize=512)
def _launch(kind: RankSum, ordinal: int, count: int, divisor: float) -> Callable[..., None]:
    from warptile.gpu import driver

    with driver.on_device(ordinal):
        entry, loaded = _loaded(kind, ordinal)
        names = (*map(partial_of, range(kind.ranks)), SUM)
        made: Callable[..., None] = loaded.launcher(kind.launch(entry, count, divisor), names, dict.fromkeys(names, 0))
        return made


@lru_cache(maxsize=64)
def _loaded(kind: RankSum, ordinal: int) -> tuple[str, Any]:
    backend = GpuBackend(ordinal)
    kernel = KERNELS.kernel(kind.source, backend.arch)
    return kernel.entry, backend.load(kernel)
