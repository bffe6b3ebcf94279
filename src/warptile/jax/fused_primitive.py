"""The JAX primitive ``warptile_fused_matmul``: a matmul with an epilogue, whose results are a list."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
from jax.extend.core import Primitive

from warptile.arrays.xla_buffers import ProgramEpilogue
from warptile.jax.primitive import (
    Options,
    abstract,
    custom_call,
    described,
    place_of,
    register_lowering,
    results_of,
    stored_operands,
    takes,
)
from warptile.runtime.execute import has_gpu

fused_p = Primitive("warptile_fused_matmul")
"""Operands A, B, C where ``options.beta`` is not zero, and the epilogue's tensors. Parameters ``options`` and
``epilogue``, which has no reductions."""
fused_p.multiple_results = True


def _abstract(*operands: Any, options: Options, epilogue: ProgramEpilogue) -> Sequence[Any]:
    found = results_of(stored_operands(operands, epilogue=epilogue), options, epilogue)
    return [abstract(each, operands[0]) for each in found]


@lru_cache(maxsize=4096)
def _program(options: Options, epilogue: ProgramEpilogue) -> Any:
    """The primitive alone as a program, for calls outside of one."""
    return jax.jit(lambda *operands: fused_p.bind(*operands, options=options, epilogue=epilogue))


def _run(*operands: Any, options: Options, epilogue: ProgramEpilogue) -> Any:
    with jax.disable_jit(False):  # else the program would be run by calling this function again
        return _program(options, epilogue)(*operands)


def _lowered(platform: str, context: Any, *operands: Any, options: Options, epilogue: ProgramEpilogue) -> Any:
    ordinal = place_of(platform, options)
    stored = stored_operands(context.avals_in, epilogue=epilogue)
    call = described(stored, context.avals_out, options, epilogue)
    if ordinal is None or has_gpu():
        takes(call, ordinal)  # what no kernel takes is an error here
    return custom_call(platform, context, operands, call)


fused_p.def_abstract_eval(_abstract)
fused_p.def_impl(_run)
register_lowering(fused_p, _lowered)
