"""Whether two functions are certainly the same epilogue, without calling them: so that repeated calls need no trace.

A ``lambda`` in a loop is a new object each time, with the same code. What else its result can depend on is what it
reads from around it: closure, defaults, globals. Where all of that is numbers, warptile's own functions, or functions
of which the same holds, code and numbers identify the epilogue.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warptile.epilogue.epilogue_program import Program
from warptile.epilogue.tracing import trace

MODULE = "warptile"
OWN = "warptile.epilogue.expressions"
DEEPEST = 4
"""Functions that call functions, at most."""

MOST_PROGRAMS = 1024
"""Programs that are remembered."""


@dataclass(frozen=True)
class MadeOf:
    """What an epilogue that warptile made of a caller's is known by: its attribute ``warptile_made_of``.

    Attributes:
        how: identifies what was made of it.
        epilogue: the caller's.
    """

    how: Hashable
    epilogue: Callable[..., Any]


_NUMBERS = (float, int, bool, type(None), str)
_MODULES = {MODULE: MODULE, OWN: OWN}


def identity(function: Callable[..., Any]) -> Hashable | None:
    """What a function's trace depends on; None where that cannot be told."""
    program: Hashable | None = getattr(function, "warptile_program", None)  # of `program_text.replayed`
    if program is not None:
        return program
    made_of: MadeOf | None = getattr(function, "warptile_made_of", None)
    if made_of is None:
        return _of(function, 0)
    inner = identity(made_of.epilogue)
    return None if inner is None else (made_of.how, inner)


_programs: dict[Hashable, Program] = {}


def traced(function: Callable[..., Any], given: Mapping[str, Any]) -> Program:
    """The program of an epilogue, as of `warptile.epilogue.tracing.trace`; of a known one without a trace."""
    known = identity(function)
    if known is None:
        return trace(function, given)
    key = known, tuple(given)
    found = _programs.get(key)
    if found is None:
        found = trace(function, given)
        if len(_programs) >= MOST_PROGRAMS:
            _programs.clear()
        _programs[key] = found
    return found


def _of(value: Any, depth: int) -> Hashable | None:
    if not isinstance(value, types.FunctionType):
        if isinstance(value, _NUMBERS):
            return type(value), repr(value)  # 0.0 equals -0.0 and 1 equals True
        return _MODULES.get(value.__name__) if isinstance(value, types.ModuleType) else None
    if depth > DEEPEST:
        return None
    if value.__module__ == OWN:
        return value.__qualname__
    code = value.__code__
    names = _names_read(code)
    if names is None:
        return None
    found: list[Hashable] = [code]
    globals_of, cells = value.__globals__, value.__closure__
    around = [globals_of[name] for name in names if name in globals_of]
    try:
        if cells:
            around += [cell.cell_contents for cell in cells]
    except ValueError:  # a cell that is still empty
        return None
    if value.__defaults__:
        around += value.__defaults__
    if value.__kwdefaults__:
        around += value.__kwdefaults__.values()
    for each in around:
        known = _of(each, depth + 1)
        if known is None:
            return None
        found.append(known)
    return tuple(found)


@lru_cache(maxsize=MOST_PROGRAMS)
def _names_read(code: types.CodeType) -> tuple[str, ...] | None:
    """Names of globals and attributes that code reads; None where a function is made in it."""
    return None if any(isinstance(each, types.CodeType) for each in code.co_consts) else code.co_names
