"""Whether two functions are certainly the same epilogue, without calling them: so that repeated calls need no trace.

A ``lambda`` in a loop is a new object each time, with the same code. What else its result can depend on is what it
reads from around it: closure, defaults, globals. Where all of that is numbers, warptile's own functions, or functions
of which the same holds, code and numbers identify the epilogue.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
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
    if isinstance(value, _NUMBERS):
        return type(value), repr(value)  # 0.0 equals -0.0 and 1 equals True
    if isinstance(value, types.ModuleType):
        return value.__name__ if value.__name__ in (MODULE, OWN) else None
    if not isinstance(value, types.FunctionType) or depth > DEEPEST:
        return None
    if value.__module__ == OWN:
        return value.__qualname__
    code = value.__code__
    if any(isinstance(each, types.CodeType) for each in code.co_consts):
        return None
    try:
        around = [cell.cell_contents for cell in value.__closure__ or ()]
    except ValueError:  # a cell that is still empty
        return None
    around += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    around += [value.__globals__[name] for name in code.co_names if name in value.__globals__]
    found = [_of(each, depth + 1) for each in around]
    return None if None in found else (code, *found)
