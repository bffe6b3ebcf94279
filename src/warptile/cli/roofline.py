"""``warptile roofline``: the rungs, or a problem of one's own, below the peaks and bandwidths of seven GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from warptile import measured
from warptile.cli import _roofline_views as views
from warptile.cli._files import FILE_TO_WRITE, write_file
from warptile.cli._names import DTYPE, RUNG, OneOf, one_of
from warptile.cli._tables import console_of
from warptile.errors import UnsupportedError
from warptile.roofline.pictures import rungs_picture
from warptile.roofline.published_gpus import GPUS, LEVEL_NAMES, LEVELS, REFERENCE_GPU, SHARED, PublishedGpu, published
from warptile.roofline.roofline_svg import draw
from warptile.roofline.rung_points import SIZE, RungPoint, points, runs_on, sizes, types
from warptile.rungs import RUNGS


class _Gpu(OneOf):
    """The name of a GPU, in capitals or not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(str(value).upper(), param, ctx)


GPU = _Gpu("name", lambda: tuple(GPUS), listed=True)


@click.command("roofline")
@click.option("--gpu", type=GPU, help=f"Whose roofs.  [{REFERENCE_GPU.name}, on which the rungs were measured]")
@click.option("--level", type=one_of(*LEVELS), default=SHARED, show_default=True, help="Memory level of the chart.")
@click.option("--dtype", type=DTYPE, help="Operand type, such as bf16; by default that of each rung in the ladder.")
@click.option("--rung", "names", multiple=True, metavar="NAME", type=RUNG, help="Only this rung; may be repeated.")
@click.option("--size", type=click.IntRange(1), help=f"Extent of the recorded square problem.  [{SIZE}]")
@click.option("-m", type=click.IntRange(1), help="With -n and -k: a problem of your own instead of rungs.")
@click.option("-n", type=click.IntRange(1), help="Columns of B and D.")
@click.option("-k", type=click.IntRange(1), help="Columns of A, rows of B.")
@click.option("--list", "listed", is_flag=True, help="Print the figures of the GPUs with their sources.")
@click.option(
    "--derive", is_flag=True,
    help='Print where 4, 128 and 224 FLOP/byte of the article "Tensor cores I: the WMMA GEMM" come from.',
)  # fmt: skip
@click.option("--plot", type=FILE_TO_WRITE, help="Rungs: write an SVG picture as well.")
@click.option("--ascii", "in_ascii", is_flag=True, help="Draw with ASCII characters alone.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    gpu: str | None,
    level: str,
    dtype: str | None,
    names: tuple[str, ...],
    size: int | None,
    m: int | None,
    n: int | None,
    k: int | None,
    listed: bool,
    derive: bool,
    plot: Path | None,
    in_ascii: bool,
    as_json: bool,
) -> int:
    """Show what limits each rung: a memory level or arithmetic.

    A roofline draws speed over FLOP per byte of a memory level. No kernel is above its roof, which is the bandwidth
    times FLOP per byte, or the peak. Rungs are drawn at the speeds that were recorded on an H200; on other GPUs, at
    the most that the roofs allow.

    With -m, -n and -k: the least time of that problem on each GPU, every matrix read or written once.

    \b
    Examples:
      warptile roofline
      warptile roofline --level l2 --rung wgmma-final --rung wgmma-pingpong
      warptile roofline --gpu A100 --level dram
      warptile roofline -m 16 -n 8192 -k 8192 --dtype bf16
      warptile roofline --list --gpu T4
    """
    own = check_modes(
        {"-m": m, "-n": n, "-k": k},
        {"--list": listed, "--derive": derive},
        {"--rung": names, "--size": size, "--plot": plot},
        dtype,
    )
    chosen = [published(gpu)] if gpu else list(GPUS.values())
    console = console_of(views.WIDTH)
    if listed:
        views.listing(console, chosen, as_json=as_json)
    elif derive:
        views.derivation(console, as_json=as_json)
    elif own is not None:
        views.own_problem(console, chosen, own, dtype or "float16", as_json=as_json)
    else:
        roofs = published(gpu) if gpu else REFERENCE_GPU
        found = recorded(roofs, names, dtype, size or SIZE)
        if plot is not None or not as_json:
            check_level(roofs, level)
        if plot is not None:
            write(plot, draw(rungs_picture(found, level, roofs)))
        if as_json:
            views.rungs_json(found, roofs)
        else:
            views.rungs(console, found, level, roofs, in_ascii=in_ascii)
    return 0


def write(path: Path, picture: str) -> None:
    """Write the picture of ``--plot``.

    Raises:
        click.FileError: the file cannot be written.
    """
    write_file(path, picture)
    click.echo(f"{path}: written", err=True)


def check_modes(
    extents: dict[str, int | None], tables: dict[str, bool], of_rungs: dict[str, Any], dtype: str | None
) -> tuple[int, int, int] | None:
    """The extents of a problem of one's own, or None.

    Raises:
        click.UsageError: some extents without the others, or options that do not go together.
    """
    given = [name for name, extent in extents.items() if extent is not None]
    asked = [name for name, flag in tables.items() if flag]
    if given and len(given) < len(extents):
        raise click.UsageError(
            f"got {' and '.join(given)}; a problem needs all three, as in warptile roofline -m 4096 -n 4096 -k 4096"
        )
    modes = [*asked, *(["-m -n -k"] if given else [])]
    if len(modes) > 1:
        raise click.UsageError(f"{' and '.join(modes)} print different things; give one of them")
    without = [name for name, value in of_rungs.items() if value] + (["--dtype"] if dtype and asked else [])
    if modes and without:
        raise click.UsageError(f"{', '.join(without)}: has no meaning with {modes[0]}; leave it out")
    m, n, k = extents.values()
    return (m, n, k) if m is not None and n is not None and k is not None else None


def recorded(gpu: PublishedGpu, names: Sequence[str], dtype: str | None, size: int) -> list[RungPoint]:
    """The recorded rungs that were asked for.

    Raises:
        UnsupportedError: nothing was recorded so, or the GPU runs none of them.
    """
    summary = measured.summary()
    if size not in sizes(summary):
        known = ", ".join(map(str, sizes(summary)))
        raise UnsupportedError(f"--size: got {size}; recorded are {known}, as in warptile roofline --size {SIZE}")
    if dtype is not None and dtype not in types(summary):
        known = ", ".join(types(summary))
        raise UnsupportedError(f"--dtype: got {dtype}; rungs were recorded in {known}, such as --dtype float16")
    if dtype is not None and gpu.peak(dtype) is None:
        raise UnsupportedError(
            f"--dtype: got {dtype}, of which no peak of the {gpu.name} is published; leave out --dtype"
        )
    foreign = [name for name in names or RUNGS if not runs_on(RUNGS[name], gpu)]
    if foreign and (names or len(foreign) == len(RUNGS)):
        raise UnsupportedError(
            f"--gpu: got {gpu.name}, which is {gpu.generation.name} and does not run "
            f"{', '.join(foreign) if names else 'any rung'}; try --gpu {REFERENCE_GPU.name}"
        )
    found = points(summary, gpu, names=names, dtype=dtype, size=size)
    missing = [name for name in names if name not in {point.rung for point in found}]
    if missing or not found:
        possible = [each for each in sizes(summary) if points(summary, gpu, names=missing[:1], dtype=dtype, size=each)]
        hint = f"try --size {possible[-1]}" if possible else "leave out --dtype"
        raise UnsupportedError(
            f"--rung: of {', '.join(missing) or 'all rungs'} there is no record in {dtype or 'the usual type'} at "
            f"{size}^3; {hint}"
        )
    return found


def check_level(gpu: PublishedGpu, level: str) -> None:
    """That the chart has a roof.

    Raises:
        UnsupportedError: no bandwidth of that level is published.
    """
    if gpu.bandwidth(level) is None:
        others = [each for each in LEVELS if gpu.bandwidth(each) is not None]
        raise UnsupportedError(
            f"--level: got {level}; no source gives the {LEVEL_NAMES[level]} bandwidth of the {gpu.name}; "
            f"there is {' and '.join(others)}, such as --level {others[-1]}"
        )
