"""The operators of ``torch.ops.warptile``: their schemas, and how functions are registered for them.

``torch.library.Library`` rather than ``torch.library.custom_op``, whose wrappers take longer than many a small GEMM.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from warptile.torch.inductor_lowerings import call_directly, tell_inductor

LIBRARY = torch.library.Library("warptile", "DEF")
"""Registrations live as long as this object, which is to say as long as the process."""

DEVICES = ("CUDA", "CPU")
"""Dispatch keys of tensors that have memory: on a GPU, and on the host, where the emulator computes."""

OPTIONS = "str? accumulate=None, str? precision=None, int? max_sms=None, str? backend=None, bool batch_invariant=False"
"""Keywords of `warptile.matmul` that every GEMM takes."""

SCHEMAS = {
    "matmul": (
        "(Tensor a, Tensor b, Tensor? c=None, *, Scalar alpha=1, Scalar beta=1, ScalarType? out_dtype=None, "
        f"{OPTIONS}, str? rung=None) -> Tensor"
    ),
    "matmul_out": (
        "(Tensor a, Tensor b, Tensor? c=None, *, Scalar alpha=1, Scalar beta=1, "
        f"{OPTIONS}, str? rung=None, Tensor(a!) out) -> ()"
    ),
    "fused_matmul": (
        "(Tensor a, Tensor b, Tensor? c, Tensor[] tensors, *, str program, str[] names, float[] numbers=[], "
        f"SymInt[] seeds=[], Scalar alpha=1, Scalar beta=1, ScalarType? out_dtype=None, {OPTIONS}, str? rung=None) "
        "-> Tensor[]"
    ),
    "linear": f"(Tensor x, Tensor w, Tensor? bias=None, *, ScalarType? out_dtype=None, {OPTIONS}) -> Tensor",
    "scaled_mm": (
        "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? scale_result=None, "
        "ScalarType? out_dtype=None, bool use_fast_accum=False) -> Tensor"
    ),
    "grouped_mm": ("(Tensor a, Tensor b, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor"),
}
"""Signatures in the language of PyTorch's dispatcher."""

_TAGS: dict[str, tuple[Any, ...]] = {
    # flexible_layout: any strides are taken, so the compiler may lay inputs out as it likes.
    "matmul": (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
    "matmul_out": (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
    "fused_matmul": (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
    "linear": (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
    "scaled_mm": (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
    # Of some types offsets are read on the host, which a graph could not repeat.
    "grouped_mm": (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout, torch.Tag.cudagraph_unsafe),
}

for _name, _schema in SCHEMAS.items():
    LIBRARY.define(_name + _schema, tags=_TAGS[_name])


def overload(name: str) -> Any:
    """``torch.ops.warptile.NAME.default``, which is called with less overhead than the packet of overloads."""
    return getattr(torch.ops.warptile, name).default


def implement(
    name: str, function: Callable[..., Any], fake: Callable[..., Any], compiled: Callable[..., Any] | None = None
) -> None:
    """Register what an operator does on tensors in memory, and on those without.

    Args:
        name: of the operator.
        function: computes; it is given tensors whose gradients nobody records.
        fake: makes an empty result of the right shape, type and device.
        compiled: what Inductor's programs call in its place; ``function`` by default.
    """
    for device in DEVICES:
        LIBRARY.impl(name, function, device)

    @wraps(fake)
    def traced(*arguments: Any, **options: Any) -> Any:
        tell_inductor()
        return fake(*arguments, **options)

    torch.library.register_fake(f"warptile::{name}", traced, lib=LIBRARY)
    call_directly(overload(name), compiled or function)


def plain(tensor: Any) -> Any:
    """A tensor as kernels take it: no subclass, and none whose gradient would be recorded again."""
    if tensor is None:
        return None
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        tensor = tensor.as_subclass(torch.Tensor)
    return tensor.detach() if tensor.requires_grad and torch.is_grad_enabled() else tensor
