"""``warptile``: finds the command's file, runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import gc
import importlib
import io
import logging
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

import click

import warptile
from warptile import cli
from warptile.cli._folding import tell
from warptile.cli._names import CommandGroup, instead
from warptile.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    LayoutError,
    NoDeviceError,
    ShapeError,
    UnsupportedError,
    WarptileError,
)

CHECK_FAILED = 1
USAGE = 2
NO_GPU = 3
UNSUPPORTED = 4
INTERRUPTED = 130

_EXIT_CODES: tuple[tuple[type[WarptileError], int], ...] = (
    (ArgumentError, USAGE),
    (ArgumentTypeError, USAGE),
    (ShapeError, USAGE),
    (DTypeError, USAGE),
    (LayoutError, USAGE),
    (NoDeviceError, NO_GPU),
    (UnsupportedError, UNSUPPORTED),
)
"""Exit code of each error; any other of warptile's own is `CHECK_FAILED`."""


class CommandFiles(CommandGroup):
    """A group whose commands are the modules of this folder that define ``command``; each is loaded when asked for.

    Modules whose names start with an underscore are parts of commands.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the modules, in alphabetical order."""
        names = (name for _, name, _ in pkgutil.iter_modules(cli.__path__))
        return sorted(name for name in names if name != "main" and not name.startswith("_"))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of that name, or None."""
        if name not in self.list_commands(ctx):
            return None
        found: click.Command = importlib.import_module(f"warptile.cli.{name}").command
        return found


@click.group(cls=CommandFiles, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(warptile.__version__, prog_name="warptile")
def warptile_command() -> None:
    """Matrix multiplication on NVIDIA GPUs: fast, readable kernels, which also run without a GPU.

    \b
    Examples:
      warptile doctor                    # what is installed, what is missing
      warptile ladder                    # every kernel from naive to Hopper
      warptile isa mma.m16n8k16.f32.f16  # which lane holds which element

    Exit codes: 0 ok, 1 a check failed, 2 usage, 3 needs a GPU and there is none, 4 unsupported here, 130 interrupted.
    """
    level = (os.environ.get("WARPTILE_LOG") or "WARNING").upper()
    if level not in logging.getLevelNamesMapping():
        raise click.UsageError(f"WARPTILE_LOG: {instead(level, ('DEBUG', 'INFO', 'WARNING', 'ERROR'))}")
    logging.basicConfig(level=level, format="%(name)s: %(message)s", stream=sys.stderr)


def exit_code(error: WarptileError) -> int:
    """The exit code that stands for an error."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), CHECK_FAILED)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; by default that of this process."""
    try:
        outcome: Any = warptile_command.main(
            args=None if arguments is None else list(arguments), prog_name="warptile", standalone_mode=False
        )
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        tell(said.getvalue().removesuffix("\n"))
        return error.exit_code
    except WarptileError as error:
        tell(f"{type(error).__name__}: {error}")
        return exit_code(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        tell(_told(error))
        logging.getLogger("warptile").debug("where it came from", exc_info=True)
        return CHECK_FAILED
    return outcome if isinstance(outcome, int) else 0


def _told(error: OSError) -> str:
    """An error of the system in a line: a disk that is full, a file that nobody may read."""
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{type(error).__name__}: {where}{error.strerror or error}"


def main() -> None:
    """Entry point of the ``warptile`` script."""
    # A kernel that the emulator runs is some hundred thousand objects, which stay: with Python's own thresholds much of
    # the time of a small launch goes into looking for garbage among them.
    gc.set_threshold(100_000, 50, 100)
    if sys.stdout is None:  # closed by who started us (`>&-`): what is printed goes nowhere
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as the process lives)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # of a locale without some character of ours
    try:
        code = run()
        sys.stdout.flush()
    except OSError as error:
        # The reader has gone (`warptile ladder | head`), which is no error of ours, or the disk is full; in both cases
        # nothing can be written any more.
        if not isinstance(error, BrokenPipeError):
            tell(_told(error))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CHECK_FAILED
    sys.exit(code)


if __name__ == "__main__":
    main()
