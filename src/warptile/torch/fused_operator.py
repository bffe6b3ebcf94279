"""``torch.ops.warptile.fused_matmul``: a matmul with an epilogue, as one operator of a graph.

The epilogue is the text of its traced program, and its operands are lists of tensors, numbers and seeds, named in that
order, so that a graph can be written to a file, and everything that changes the result is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from warptile.api import matmul
from warptile.epilogue.epilogue_program import Program
from warptile.epilogue.program_text import program_of, replayed, text_of
from warptile.errors import EpilogueError
from warptile.torch.fused_gradients import EpilogueCall, blocked, record_fused
from warptile.torch.gradients import Setting, below_autograd, is_recorded, recorded
from warptile.torch.library import LIBRARY, implement, overload, plain
from warptile.torch.results import check_broadcasts, fused_shapes, fused_types, matmul_shape
from warptile.torch.vmap_rules import fused_rule

SEED_MODULUS = 2**64
"""torch's integers are signed; seeds are not."""


def signed(name: str, seed: Any) -> Any:
    """A seed as one of torch's integers; a symbol stands for one already.

    Raises:
        EpilogueError: no whole number.
    """
    if not isinstance(seed, (int, torch.SymInt)):
        raise EpilogueError(f"{name}: got {seed!r}; a seed is a whole number, such as {name}=1234")
    return seed - SEED_MODULUS if isinstance(seed, int) and seed >= SEED_MODULUS // 2 else seed


def _unsigned(seed: Any) -> Any:
    return seed % SEED_MODULUS if isinstance(seed, int) else seed


def _numbers(names: Sequence[str], tensors: Sequence[Any], numbers: Sequence[Any], seeds: Sequence[Any]) -> Any:
    """Operands that are no tensors, by name."""
    return dict(zip(names[len(tensors) :], [*numbers, *map(_unsigned, seeds)], strict=True))


def _fused(a: Any, b: Any, c: Any, tensors: Any, **options: Any) -> list[Any]:
    return _compiled(plain(a), plain(b), plain(c), list(map(plain, tensors)), **options)


def _compiled(
    a: Any, b: Any, c: Any, tensors: Any, *, program: str, names: Any, numbers: Any = (), seeds: Any = (),
    beta: Any = 1, **options: Any,
) -> list[Any]:  # fmt: skip
    operands = dict(zip(names, tensors, strict=False))
    if len(names) > len(tensors):
        operands |= _numbers(names, tensors, numbers, seeds)
    epilogue = replayed(program_of(program))
    outputs = matmul(a, b, c, beta=None if c is None else beta, epilogue=epilogue, **options, **operands)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def _fused_fake(
    a: Any, b: Any, c: Any, tensors: Any, *, program: str, names: Any, out_dtype: Any = None, **options: Any
) -> list[Any]:
    shape = matmul_shape(a, b)
    check_broadcasts("c", c, shape)
    found = program_of(program)
    of_blocks = blocked(found)
    for name, each in zip(names, tensors, strict=False):
        if name in found.seeds:
            raise EpilogueError(f"{name}: got a tensor; a seed is a whole number, such as {name}=1234")
        if name not in of_blocks:
            check_broadcasts(name, each, shape)
    shapes = fused_shapes(a, b, shape, found)
    types = fused_types(a, b, out_dtype, found)
    return [a.new_empty(each, dtype=dtype) for each, dtype in zip(shapes, types, strict=True)]


def _fused_autograd(
    keyset: Any, a: Any, b: Any, c: Any, tensors: Any, *, program: str, names: Any, numbers: Any = (),
    seeds: Any = (), **options: Any,
) -> list[Any]:  # fmt: skip
    def compute(made: Program) -> Any:
        return below_autograd(
            FUSED_MATMUL, keyset, a, b, c, tensors, program=text_of(made), names=names, numbers=numbers, seeds=seeds,
            **options,
        )  # fmt: skip

    found = program_of(program)
    if not is_recorded(a, b, c, *tensors):
        outputs: list[Any] = compute(found)
        return outputs
    setting = Setting(
        options.get("alpha", 1), options.get("beta", 1), options.get("precision"), options.get("max_sms"),
        options.get("backend"), options.get("batch_invariant", False),
    )  # fmt: skip
    call = EpilogueCall(found, tuple(names[: len(tensors)]), _numbers(names, tensors, numbers, seeds), setting, compute)
    *outputs, _kept = recorded(record_fused, a, b, c, call, *tensors)
    return outputs


FUSED_MATMUL = overload("fused_matmul")
implement("fused_matmul", _fused, _fused_fake, compiled=_compiled)
LIBRARY.impl("fused_matmul", _fused_autograd, "Autograd", with_keyset=True)
torch.library.register_vmap("warptile::fused_matmul", fused_rule, lib=LIBRARY)
