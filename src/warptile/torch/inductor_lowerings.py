"""Programs of Inductor call the operators as Python functions, without torch's dispatcher.

To Inductor an operator that it does not know is a *fallback*: the generated program calls it through the dispatcher,
which takes longer than the call itself. Here it stays a fallback, of which only the name in the generated program is
another one: that of the function behind the operator. A compiled program runs below autograd and autocast, on plain
tensors, so that nothing is left for the dispatcher to do.

Inductor's lowerings are no public interface. Where they are not as expected, programs call the dispatcher.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

FUNCTION = "function"
"""The attribute of an operator that holds the function behind it: generated programs, also those that another process
has compiled and stored, find it there."""

_waiting: dict[Any, str] = {}
"""Operators that Inductor has not been told of yet, and how generated programs name their functions."""


def call_directly(operator: Any, function: Callable[..., Any]) -> None:
    """Have Inductor's programs call a function in place of an operator.

    Args:
        operator: an overload.
        function: of the operator's arguments, for tensors whose gradients nobody records.
    """
    setattr(operator, FUNCTION, function)
    _waiting[operator] = f"torch.ops.{operator}.{FUNCTION}"


def tell_inductor() -> None:
    """Register what is waiting, if Inductor is loaded; it is not loaded for this. Called whenever an operator is
    traced: Inductor is loaded before it traces a graph."""
    if not _waiting or "torch._inductor.lowering" not in sys.modules:
        return
    waiting = dict(_waiting)
    _waiting.clear()
    try:
        for operator, name in waiting.items():
            _register(operator, name)
    except (ImportError, AttributeError, TypeError):
        return  # another Inductor, whose programs call the dispatcher


def _register(operator: Any, name: str) -> None:
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import V

    fall_back: Any = lowering.fallback_handler(operator)

    def lower(*args: Any, **kwargs: Any) -> Any:
        before = len(V.graph.operations)
        outputs = fall_back(*args, **kwargs)
        for node in V.graph.operations[before:]:
            if isinstance(node, ir.FallbackKernel) and node.op_overload is operator and not V.graph.cpp_wrapper:
                node.python_kernel_name = name
        return outputs

    lowering.add_needs_realized_inputs(operator)
    lowering.register_lowering(operator, type_promotion_kind=None)(lower)
