"""fast.cu: the steps of a bfloat16 GEMM for Hopper, from warp tiles to TMA, wgmma, clusters and asynchronous stores.

python tests/outside/fast_cu.py FOLDER [--json RECORDS]; FOLDER is a checkout of github.com/pranjalssh/fast.cu with the
headers of CCCL in ``cccl`` (see cccl.py).

Matrices are small, and persistent kernels are launched with few CTAs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from outside_suite import Case, main

import warptile as wt

CTAS = 4
SCHEDULE = 128
"""Tiles of a cluster in the list that the last kernels read, ended by -1."""

PRELUDE = """
#include <cuda.h>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cassert>
typedef __nv_bfloat16 bf16;
typedef unsigned int uint;
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
"""
"""What the file that includes them all has before the first."""

EXITED = "consumers arrive at mbarriers of the other CTA of the cluster, which may have exited"
UNFENCED = "a TMA store reads shared memory without a proxy fence, and may do so after its CTA has exited"
"""Why kernels that their author takes for correct have findings."""

Array = np.ndarray[Any, Any]
Given = Callable[[], Sequence[Any]]
"""Makes the arguments of a launch behind its extents."""


class Gemm:
    """Operands of one product, with K-major A and B and a column-major D.

    Attributes:
        m, n, k: extents.
        a, b: (m, k) and (n, k).
        d: (n, m), of the newest launch.
        wanted: what it has to be.
    """

    def __init__(self, m: int, n: int, k: int) -> None:
        random = np.random.default_rng(1)
        self.m, self.n, self.k = m, n, k
        self.a, self.b = (random.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
        self.d = np.zeros((n, m), ml_dtypes.bfloat16)
        product = self.b.astype(np.float64) @ self.a.astype(np.float64).T
        self.wanted = product.astype(np.float32).astype(ml_dtypes.bfloat16)

    def zeros(self) -> Array:
        """`d`, full of zeros."""
        self.d[:] = 0
        return self.d

    def stored(self, *more: Any) -> Given:
        """D, full of zeros, and some more."""
        return lambda: (self.zeros(), *more)

    def stored_by_tma(self, box: tuple[int, ...], *more: Any) -> Given:
        """The same with a tensor map of D's panels."""
        return lambda: (wt.tensor_map(tiled(self.zeros()), box=box), *more)

    def maps(self, box_a: tuple[int, ...], box_b: tuple[int, ...]) -> tuple[Any, ...]:
        """Tensor maps of A and B; from three axes on, of their panels."""

        def see(matrix: Array) -> Array:
            return tiled(matrix)[(None,) * (len(box_a) - 3)] if len(box_a) > 2 else matrix

        pairs = ((self.a, box_a), (self.b, box_b))
        return tuple(wt.tensor_map(see(matrix), box=box, swizzle="128B") for matrix, box in pairs)


def stage_bytes(bm: int, bn: int, stages: int) -> int:
    """Shared memory of some stages of tiles with 64 columns of A and B."""
    return 2 * 64 * (bm + bn) * stages


def close(got: Array, wanted: Array) -> bool:
    """Whether every element is within one place of bfloat16; NaN is not."""
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    return bool((np.abs(got - wanted) <= 2.0**-7 * np.abs(wanted) + 1e-3).all())


def tiled(matrix: Array) -> Array:
    """A matrix as the tensor maps of the later kernels have it: panels of 64 columns."""
    rows, columns = matrix.shape
    return matrix.reshape(rows, columns // 64, 64).swapaxes(0, 1)


def schedule(clusters: int, tiles_m: int, tiles_n: int) -> Array:
    """The tiles of each cluster, its row in the upper 16 bits."""
    found = np.full((clusters, SCHEDULE), -1, np.int32)
    for number in range(tiles_m * tiles_n):
        found[number % clusters, number // clusters] = number // tiles_n << 16 | number % tiles_n
    return found


def cases(folder: Path) -> Iterator[Case]:
    """All launches."""
    small, large = Gemm(256, 512, 320), Gemm(2048, 2048, 128)
    text = {each: (folder / f"examples/matmul/matmul_{each}.cuh").read_text() for each in range(1, 13)}

    def case(number: int, arguments: str, gemm: Gemm, launch: tuple[Any, ...], given: Given, **more: Any) -> Case:
        return Case(
            f"matmul_{number}", PRELUDE + text[number], f"M{number}::matmulKernel{number}<{arguments}>", launch,
            lambda: (gemm.m, gemm.n, gemm.k, *given()), right=lambda _: close(gemm.d, gemm.wanted),
            options={"arch": "sm_90a", "include_folders": [folder / "cccl"]}, **more,
        )  # fmt: skip

    yield Case(
        "matmul_1", PRELUDE + text[1], "sgemmWarptiling<128, 128, 16, 64, 64, 4, 8, 4, 128>",
        ((small.n // 128, small.m // 128), 128),
        lambda: (small.m, small.n, small.k, small.a, small.b.T.copy(), small.zeros()),
        right=lambda _: close(small.d.reshape(small.m, small.n), small.wanted.T),  # B and D are row-major here
        options={"arch": "sm_90a", "include_folders": [folder / "cccl"]},
    )  # fmt: skip
    for number, arguments, bm, bn, threads, stages in (
        (2, "64, 64, 64, 64, 64, 16, 128", 64, 64, 128, 0),
        (3, "128, 128, 64, 128, false", 128, 128, 128, 1),
        (4, "128, 128, 64, 256, 5", 128, 128, 256, 5),
        (5, "128, 256, 64, 384, 3", 128, 256, 384, 3),
    ):
        launch = (small.m // bm * small.n // bn, threads, None, stage_bytes(bm, bn, stages))
        debug = (None,) if number == 3 else ()
        maps = small.maps((bm, 64), (bn, 64))
        yield case(number, arguments, small, launch, small.stored(*maps, *debug))

    tile, ring = f"128, 256, 64, 384, 3, {CTAS}", stage_bytes(128, 256, 3)
    flat, panels = large.maps((128, 64), (256, 64)), large.maps((1, 128, 64), (1, 256, 64))
    yield case(6, tile, large, (CTAS, 384, None, ring), large.stored(*flat))
    of_five_axes = large.maps((1, 1, 1, 128, 64), (1, 1, 1, 256, 64))
    yield case(7, tile, large, (CTAS, 384, None, ring), large.stored(*of_five_axes))
    for number in (8, 9):
        yield case(number, f"{tile}, 2, 1", large, (CTAS, 384, None, ring), large.stored(*panels),
                   finds=("races",), note=EXITED)  # fmt: skip

    tiles = schedule(CTAS // 2, small.m // 256, small.n // 256)
    of_small = small.maps((1, 128, 64), (1, 256, 64))
    for number, gemm, padding, more in ((10, large, 0, ()), (11, small, 0, (tiles,)), (12, small, 8, (tiles,))):
        box = (1, 256, 72) if padding else (2, 256, 64)
        shared = ring + 2 * 256 * (128 + 2 * padding) + 48 + (4 * SCHEDULE if more else 0)
        maps = panels if gemm is large else of_small
        yield case(
            number, f"{tile}, 2, 1", gemm, (CTAS, 384, None, shared),
            gemm.stored_by_tma(box, *maps, *more),
            finds=("bulk-exit", "races"), note=f"{EXITED}; {UNFENCED}",
        )  # fmt: skip


if __name__ == "__main__":
    main("fast.cu", cases)
