"""``torch.ops.warptile.matmul`` and ``matmul_out``: on tensors in memory, on those without, and for autograd."""

from __future__ import annotations

from typing import Any

import torch

from warptile.api import matmul
from warptile.errors import ShapeError, UnsupportedError
from warptile.torch.gradients import Setting, below_autograd, is_recorded, record_matmul, recorded
from warptile.torch.library import LIBRARY, implement, overload, plain
from warptile.torch.results import check_broadcasts, matmul_shape, result_type
from warptile.torch.vmap_rules import matmul_rule

_BELOW_INPLACE = torch._C._after_ADInplaceOrView_keyset


def _matmul(a: Any, b: Any, c: Any = None, **options: Any) -> Any:
    return _compiled(plain(a), plain(b), plain(c), **options)


def _compiled(a: Any, b: Any, c: Any = None, *, beta: Any = 1, **options: Any) -> Any:
    return matmul(a, b, c, beta=None if c is None else beta, **options)


def _matmul_fake(a: Any, b: Any, c: Any = None, *, out_dtype: Any = None, **options: Any) -> Any:
    shape = matmul_shape(a, b)
    check_broadcasts("c", c, shape)
    return a.new_empty(shape, dtype=result_type(a, b, out_dtype))


def _matmul_autograd(keyset: Any, a: Any, b: Any, c: Any = None, **options: Any) -> Any:
    def compute() -> Any:
        return below_autograd(MATMUL, keyset, a, b, c, **options)

    if is_recorded(a, b, c):
        setting = Setting(
            options.get("alpha", 1), options.get("beta", 1), options.get("precision"), options.get("max_sms"),
            options.get("backend"), options.get("batch_invariant", False),
        )  # fmt: skip
        return recorded(record_matmul, a, b, c, setting, compute)
    return compute()


def _matmul_out(a: Any, b: Any, c: Any = None, *, beta: Any = 1, out: Any, **options: Any) -> None:
    matmul(plain(a), plain(b), plain(c), beta=None if c is None else beta, out=plain(out), **options)


def _matmul_out_fake(a: Any, b: Any, c: Any = None, *, out: Any, **options: Any) -> None:
    shape = matmul_shape(a, b)
    check_broadcasts("c", c, shape)
    if list(out.shape) != shape:
        raise ShapeError(
            f"out: got shape {tuple(out.shape)}; the result has shape {tuple(shape)}, such as "
            f"out=torch.empty({tuple(shape)}, dtype={result_type(a, b, None)})"
        )


def _matmul_out_autograd(keyset: Any, a: Any, b: Any, c: Any = None, *, out: Any, **options: Any) -> None:
    if torch.is_grad_enabled() and torch._C._any_requires_grad(a, b, c, out):
        raise UnsupportedError(
            "out: an argument requires a gradient, which is not recorded through out=, as in torch; leave out= away, "
            "or call it under torch.no_grad()"
        )
    below_autograd(MATMUL_OUT, keyset, a, b, c, out=out, **options)


def _matmul_out_written(keyset: Any, *args: Any, out: Any, **options: Any) -> None:
    """Count the write, so that autograd notices a saved tensor that has changed."""
    torch.autograd.graph.increment_version(out)
    MATMUL_OUT.redispatch(keyset & _BELOW_INPLACE, *args, out=out, **options)


MATMUL, MATMUL_OUT = overload("matmul"), overload("matmul_out")
implement("matmul", _matmul, _matmul_fake, compiled=_compiled)
implement("matmul_out", _matmul_out, _matmul_out_fake)
LIBRARY.impl("matmul", _matmul_autograd, "Autograd", with_keyset=True)
LIBRARY.impl("matmul_out", _matmul_out_autograd, "Autograd", with_keyset=True)
LIBRARY.impl("matmul_out", _matmul_out_written, "ADInplaceOrView", with_keyset=True)
torch.library.register_vmap("warptile::matmul", matmul_rule, lib=LIBRARY)
