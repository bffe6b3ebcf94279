"""Choose the kernels that plans of wgmma-final take: ``python -m warptile.bench.campaign.choose_kernels``.

For each combination of types, and each shape of problems that has kernels of its own, hundreds of problems are drawn as
surveys draw them, and every surveyed kernel's best time for each is predicted. Kernels are then added one by one, each
time the one that brings the best of the chosen closest to the best of all, until `MOST` are chosen or another adds
nothing. The file has them in that order. Needs no GPU.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from warptile.bench.campaign.drawn_problems import Selection, drawn
from warptile.device import CLUSTERED_ON_AN_H100, KNOWN, REFERENCE, DeviceLimits
from warptile.problem import Problem
from warptile.rungs.wgmma.final import illegal_on
from warptile.rungs.wgmma.kernels import FILE, STRADDLING, SURVEYED, Kernel, kind_of, shape_of
from warptile.rungs.wgmma.pool import pool

ALWAYS = (
    Kernel(128, 256, 2, 0, 1, "overlap"), Kernel(64, 64, 1, 0, 2, "split"), Kernel(128, 128, 2, 0, 1, "split"),
)  # fmt: skip
"""Kernels that are chosen whatever is predicted: warps of the first repack misaligned operands, which those of clusters
do not; the others split a long K into any number of parts, on any number of SMs."""

MOST = 256
"""Kernels for a combination of types. With 128, a fifth of random bf16 problems with K-major operands lost more than
3 % to the best of all; with 256 it is one in thirty."""

FEWER_SMS = KNOWN["NVIDIA H20"]
"""A quarter of the problems are looked at on a smaller GPU too, so that kernels do not suit one number of SMs alone."""

DRAWN = {None: 100_000, "few-columns": 25_000, "short-k": 10_000, "batched": 10_000}
"""Problems of all types together that are drawn, by `Selection.shape`."""

LOOKED_AT, SEED = 1500, 20261122
"""Of them, how many are looked at for a kind."""

ENOUGH = 1e-5
"""A kernel that brings less than this, in the mean of log times as `WORST` weighs them, is not added."""

WORST = 4.0
"""Weight of the mean square of log times beyond the best, relative to their mean: a few slow problems count more than
many that are a little slower."""


def times_of(problems: list[Problem], device: DeviceLimits) -> NDArray[np.float64]:
    """Predicted log times: a row for each problem, a column for each of `SURVEYED`; infinite where it is not legal."""
    found = np.full((len(problems), len(SURVEYED)), np.inf)
    illegal = illegal_on(device)
    for row, problem in zip(found, problems, strict=True):
        some = pool(problem, illegal, device, SURVEYED)
        np.minimum.at(row, some.rows["order"].astype(int), np.log(some.times_us))
    return found


def chosen(times: NDArray[np.float64]) -> list[int]:
    """Columns in the order in which they were added, those of `ALWAYS` first."""
    best = times.min(axis=1)
    beyond = times - best[:, None]
    found = [SURVEYED.index(each) for each in ALWAYS]
    so_far = np.minimum(beyond[:, found].min(axis=1), 1.0)
    while len(found) < MOST:
        with_each = np.minimum(so_far[:, None], beyond)
        losses = (with_each + WORST * with_each**2).mean(axis=0)
        now = (so_far + WORST * so_far**2).mean()
        place = int(losses.argmin())
        if now - losses[place] < ENOUGH:
            break
        found.append(place)
        so_far = with_each[:, place]
    return found


def chosen_for(kind: str, problems: list[Problem]) -> tuple[str, list[Kernel]]:
    """The kernels of a combination of types, and how good they are, in words. Where rows lie in two lines of L2, on
    which larger clusters gain most, they are chosen for as many clusters as an H100 holds."""
    gpus = [(REFERENCE, 1), (FEWER_SMS, 4)]
    if kind.endswith(STRADDLING):
        h100 = KNOWN["NVIDIA H100 80GB HBM3"]
        counted = [replace(gpu, clustered=CLUSTERED_ON_AN_H100) for gpu in (REFERENCE, h100)]
        gpus = [(counted[0], 1), (counted[1], 2), (FEWER_SMS, 4)]
    times = np.concatenate([times_of(problems[::step], device) for device, step in gpus])
    places = chosen(times)
    loss = times[:, places].min(axis=1) - times.min(axis=1)
    said = (
        f"{kind}: {len(places)} of {len(SURVEYED)} kernels, {np.exp(-loss.mean()):.4f} of the best of all in "
        f"{len(problems)} problems, worst {np.exp(-loss.max()):.3f}"
    )
    return said, [SURVEYED[place] for place in places]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Choose kernels for every combination of types, and write the file."""
    problems = [each for shape, count in DRAWN.items() for each in drawn(count, SEED, Selection(shape=shape))]
    by_kind: dict[str, list[Problem]] = {}
    for place in np.random.default_rng(SEED).permutation(len(problems)).tolist():
        problem = problems[place]
        of_kind = by_kind.setdefault(kind_of(problem, shape_of(problem)), [])
        if len(of_kind) < LOOKED_AT:
            of_kind.append(problem)
    kinds = sorted(by_kind)
    chosen_kernels: dict[str, list[Kernel]] = {}
    with ProcessPoolExecutor() as processes:
        for kind, (said, kernels) in zip(
            kinds, processes.map(chosen_for, kinds, map(by_kind.__getitem__, kinds)), strict=True
        ):
            click.echo(said)
            chosen_kernels[kind] = kernels
    lines = ",\n".join(
        f'"{kind}":[\n' + ",\n".join(msgspec.json.encode(each).decode() for each in kernels) + "]"
        for kind, kernels in chosen_kernels.items()
    )
    FILE.write_text("{" + lines + "}\n", "utf-8")


if __name__ == "__main__":
    main()
