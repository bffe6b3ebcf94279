"""``torch.ops.warptile.linear``: ``x @ w.T + bias`` with one operator and one node of the autograd graph."""

from __future__ import annotations

from typing import Any

import torch

from warptile.linear_call import check_linear, linear, product_of_rows
from warptile.torch.gradients import Setting, below_autograd, is_recorded, record_linear, recorded
from warptile.torch.library import LIBRARY, implement, overload, plain
from warptile.torch.results import linear_shape, result_type
from warptile.torch.vmap_rules import linear_rule


def _linear(x: Any, w: Any, bias: Any = None, **options: Any) -> Any:
    x, w, bias = plain(x), plain(w), plain(bias)
    check_linear(x, w, bias)
    return product_of_rows(x, w, bias, options)


def _linear_fake(x: Any, w: Any, bias: Any = None, *, out_dtype: Any = None, **options: Any) -> Any:
    check_linear(x, w, bias)
    return x.new_empty(linear_shape(x, w), dtype=result_type(x, w, out_dtype))


def _linear_autograd(keyset: Any, x: Any, w: Any, bias: Any = None, **options: Any) -> Any:
    def compute() -> Any:
        return below_autograd(LINEAR, keyset, x, w, bias, **options)

    if is_recorded(x, w, bias):
        setting = Setting(
            precision=options.get("precision"), max_sms=options.get("max_sms"), backend=options.get("backend"),
            batch_invariant=options.get("batch_invariant", False),
        )  # fmt: skip
        return recorded(record_linear, x, w, bias, setting, compute)
    return compute()


LINEAR = overload("linear")
implement("linear", _linear, _linear_fake, compiled=linear)
LIBRARY.impl("linear", _linear_autograd, "Autograd", with_keyset=True)
torch.library.register_vmap("warptile::linear", linear_rule, lib=LIBRARY)
