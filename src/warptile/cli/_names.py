"""Options and arguments that take one of some names: what is misspelt is answered with the nearest."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from warptile.errors import DTypeError

if TYPE_CHECKING:
    _ParamType = click.ParamType[str]
    _ShapeType = click.ParamType[tuple[int, int, int]]
else:  # older versions of click have no parameter there
    _ParamType = _ShapeType = click.ParamType

OFFERED = 3
"""Names that are offered for one that is unknown."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The names that ``name`` may stand for, the likeliest first."""
    by_case = {each.lower(): each for each in known}
    return [by_case[each] for each in difflib.get_close_matches(name.lower(), by_case, n=OFFERED, cutoff=cutoff)]


def instead(name: str, known: Sequence[str]) -> str:
    """What to say of a name that is none of those that are known: the nearest, or where nothing is near, all."""
    found = nearest(name, known)
    if found:
        return f"got {name!r}; did you mean {' or '.join(found)}?"
    return f"got {name!r}; it takes {', '.join(known)}"


class CommandGroup(click.Group):
    """A group that answers a misspelt command with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"command: {instead(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


class OneOf(_ParamType):
    """One of some names.

    Attributes:
        name: what a name stands for, as the help text shows it where it does not list all.
    """

    def __init__(self, name: str, names: Callable[[], Sequence[str]], *, listed: bool = False) -> None:
        """``names`` is asked when a name is given: a help text that lists none loads nothing."""
        self.name = name
        self._names = names
        self._listed = listed

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:
        """What the help text shows: all names, where they are few."""
        return f"[{'|'.join(self._names())}]" if self._listed else None

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself.

        Raises:
            click.BadParameter: it is unknown.
        """
        known = self._names()
        if value not in known:
            self.fail(instead(str(value), known), param, ctx)
        return str(value)


def one_of(*names: str) -> OneOf:
    """One of a few names, which the help text lists."""
    return OneOf("name", lambda: names, listed=True)


def rungs() -> tuple[str, ...]:
    """Names of the rungs."""
    from warptile.rungs import RUNGS

    return tuple(RUNGS)


RUNG = OneOf("rung", rungs)
"""The name of a rung."""


class _TypeName(_ParamType):
    name = "type"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from warptile.dtypes import DTYPES, dtype

        try:
            return dtype(str(value)).name
        except DTypeError:
            short = {each.ptx: each.name for each in DTYPES.values()}
            self.fail(instead(str(value), [*DTYPES, *(name for name in short if name not in DTYPES)]), param, ctx)


DTYPE = _TypeName()
"""The name of an element type, full or short; becomes the full one."""

BACKEND = one_of("auto", "gpu", "emulator")
"""Where kernels run."""


class _Shape(_ShapeType):
    name = "MxNxK"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int, int]:
        found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", str(value).lower())
        if found is None:
            self.fail(f"got {value!r}; it takes three extents from 1 on, such as 4096x14336x4096", param, ctx)
        return int(found[1]), int(found[2]), int(found[3])


SHAPE = _Shape()
"""M, N and K of a GEMM, such as ``4096x14336x4096``."""
