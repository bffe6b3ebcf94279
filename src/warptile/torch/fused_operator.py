"""``torch.ops.warptile.fused_matmul``: a matmul with an epilogue, as one operator of a graph.

The epilogue is the text of its traced program, and its operands are a list of tensors and one of numbers, so that a
graph can be written to a file, and everything that changes the result is an argument.
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


def signed(seed: int) -> int:
    """A seed as one of torch's integers."""
    return seed - SEED_MODULUS if seed >= SEED_MODULUS // 2 else seed


def _numbers(program: Program, names: Sequence[str], numbers: Sequence[Any]) -> dict[str, Any]:
    named = dict(zip(names[len(names) - len(numbers) :], numbers, strict=True))
    return {name: int(each) % SEED_MODULUS if name in program.seeds else each for name, each in named.items()}


def _fused(
    a: Any, b: Any, c: Any, tensors: Any, *, program: str, names: Any, numbers: Any, beta: Any = 1, **options: Any
) -> list[Any]:
    found = program_of(program)
    operands = dict(zip(names, map(plain, tensors), strict=False)) | _numbers(found, names, numbers)
    outputs = matmul(
        plain(a), plain(b), plain(c), beta=None if c is None else beta, epilogue=replayed(found), **options, **operands
    )
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def _fused_fake(
    a: Any, b: Any, c: Any, tensors: Any, *, program: str, names: Any, numbers: Any, out_dtype: Any = None,
    **options: Any,
) -> list[Any]:  # fmt: skip
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
    keyset: Any, a: Any, b: Any, c: Any, tensors: Any, *, program: str, names: Any, numbers: Any, **options: Any
) -> list[Any]:
    def compute(made: Program) -> Any:
        return below_autograd(
            FUSED_MATMUL, keyset, a, b, c, tensors, program=text_of(made), names=names, numbers=numbers, **options
        )

    found = program_of(program)
    if not is_recorded(a, b, c, *tensors):
        outputs: list[Any] = compute(found)
        return outputs
    setting = Setting(
        options.get("alpha", 1), options.get("beta", 1), options.get("precision"), options.get("max_sms"),
        options.get("backend"),
    )  # fmt: skip
    call = EpilogueCall(found, tuple(names[: len(tensors)]), _numbers(found, names, numbers), setting, compute)
    *outputs, _kept = recorded(record_fused, a, b, c, call, *tensors)
    return outputs


FUSED_MATMUL = overload("fused_matmul")
implement("fused_matmul", _fused, _fused_fake)
LIBRARY.impl("fused_matmul", _fused_autograd, "Autograd", with_keyset=True)
torch.library.register_vmap("warptile::fused_matmul", fused_rule, lib=LIBRARY)
