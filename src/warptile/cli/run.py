"""``warptile run``: a whole CUDA program on the emulator."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from warptile.arch import ARCHES
from warptile.cli._folding import tell
from warptile.cli._kernel_launch import check_options, schedule_named
from warptile.cli._names import OneOf
from warptile.cli._tables import Column, console_of, show

if TYPE_CHECKING:
    from warptile.programs.emulated_gpu import EmulatedGpu

NAME_WIDTH = 40
"""Names of kernels are cut to no less."""


def _found(context: click.Context, parameter: click.Parameter, name: str) -> Path:
    """The file of a program, which is looked for as a shell does."""
    if name.endswith(".cu") and Path(name).is_file():
        return Path(name)
    found = shutil.which(name)
    if found is None:
        raise click.BadParameter(f"{name}: no executable file, such as ./program, nor a .cu file")
    return Path(found)


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("program", callback=_found)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--arch",
    type=OneOf("arch", lambda: tuple(ARCHES)),
    help="Architecture to behave as.  [one that the program has PTX for]",
)
@click.option(
    "--schedule",
    callback=schedule_named,
    default="latest",
    show_default=True,
    help="latest, earliest or random:SEED.",
)
@check_options
@click.option("--nvcc", "build", metavar="OPTIONS", default="", help="Options of nvcc, where PROGRAM is a .cu file.")
@click.option("--trace", is_flag=True, help="List every CUDA call with what it returns.")
def command(
    program: Path, arguments: tuple[str, ...], arch: str | None, schedule: str, checks: tuple[str, ...],
    ignore: tuple[str, ...], model: str, volatile: str, build: str, trace: bool,
) -> int:  # fmt: skip
    """Run a whole CUDA program without a GPU.

    Its kernels are emulated and checked.

    PROGRAM is an executable with PTX that is linked with the shared CUDA runtime, or a Python that calls the CUDA
    driver, as cuda-bindings does, with kernels as PTX:

    \b
      nvcc -cudart shared -lineinfo \\
        -gencode arch=compute_90a,code=compute_90a program.cu -o program

    A .cu file is compiled like this first, into a temporary folder.

    What its kernels do wrong is listed on standard error, with both source lines, as the program goes on. Memory,
    copies, streams, events, symbols and launches are emulated, all work in the order of the calls; a CUDA function that
    is not emulated returns cudaErrorNotSupported and is named. The exit code is the program's, or 1 if that is 0 and
    the checks have found errors, a launch was refused, or a copy was beyond its allocation.

    \b
    Examples:
      warptile run ./program --size 64
      warptile run --arch sm_80 --model common ./program
      warptile run --nvcc "-I include -O1" program.cu --size 64
      warptile run python3 program.py
    """
    from warptile.emulator import select_checks
    from warptile.programs.emulated_gpu import ProgramOptions
    from warptile.programs.run_program import built_program, read_program, run_program

    with tempfile.TemporaryDirectory(prefix="warptile-build-") as folder:
        if program.suffix == ".cu" and not build and "--nvcc" in arguments:
            tell("--nvcc stands behind the program, which gets it as its own argument; options stand before it")
        made = built_program(program, Path(folder), arch, shlex.split(build)) if program.suffix == ".cu" else program
        found = read_program(made)
        options = ProgramOptions(
            arch or found.arch, schedule, select_checks(checks, ignore=ignore, model=model, volatile=volatile), trace
        )
        status, gpu = run_program(found, arguments, options, tell)
    _summarize(program, gpu)
    if status < 0:
        tell(f"{program}: ended by signal {-status}")
        return 128 - status
    return status or int(gpu.failed)


def _summarize(program: Path, gpu: EmulatedGpu) -> None:
    """A table of the kernels, on standard error."""
    totals = list(gpu.totals.values())
    console = console_of()
    console.stderr = True
    if totals:
        columns = [
            Column("kernel", [escape(each.name) for each in totals], left=True, least=NAME_WIDTH, cut=True),
            Column("launches", [f"{each.launches:,}" for each in totals]),
            Column("warp\ninstructions", [f"{each.warp_instructions:,}" for each in totals]),
            Column("findings", [str(each.findings) if each.findings else "" for each in totals]),
        ]
        show(console, f"{program.name}, emulated as {gpu.options.arch}", columns)
    for name, count in gpu.unknown.items():
        tell(f"{name}: not emulated, called {_times(count)}")
    for name, count in gpu.refused.items():
        tell(f"{name}: refused {_times(count)}")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
