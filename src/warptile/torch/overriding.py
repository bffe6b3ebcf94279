"""override: PyTorch's own matrix products, computed by warptile.

Kernels of the dispatcher are replaced (``torch.library.Library("aten", "IMPL")``), so that everything above them stays
as it is: autograd, autocast, ``torch.compile``'s calls of library kernels, all threads. A call that warptile does not
take goes on to the kernel that was there before (``torch.library.get_kernel``), with the arguments as they came.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch

from warptile.api import matmul
from warptile.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    LayoutError,
    ShapeError,
    UnsupportedError,
    WarptileError,
)
from warptile.torch.grouped_operator import GROUPED_MM
from warptile.torch.scaled_operator import SCALED_MM

REFUSALS = (ShapeError, DTypeError, LayoutError, UnsupportedError, ArgumentError, ArgumentTypeError)
"""Errors after which the original kernel is called. Others, such as a driver's, are raised."""

MOST_REASONS = 32
"""Reasons that are told apart for each operator."""


@dataclass
class Counts:
    """Calls of torch's operators since they were routed.

    Attributes:
        served: by operator, such as ``"aten::mm"``, how many calls warptile computed.
        refused: by operator and reason, how many it left to torch.
    """

    served: Counter[str] = field(default_factory=Counter)
    refused: dict[str, Counter[str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def serve(self, operator: str) -> None:
        """Count a call that was computed."""
        with self._lock:
            self.served[operator] += 1

    def refuse(self, operator: str, error: WarptileError) -> None:
        """Count a call that was left to torch, by the first clause of the error."""
        reason = str(error).partition(";")[0]
        with self._lock:
            reasons = self.refused.setdefault(operator, Counter())
            known = reason in reasons or len(reasons) < MOST_REASONS
            reasons[reason if known else "other reasons"] += 1

    def __str__(self) -> str:
        lines = [f"{name}: {count} served" for name, count in sorted(self.served.items())]
        for name, reasons in sorted(self.refused.items()):
            lines += [f"{name}: {count} left to torch: {reason}" for reason, count in reasons.most_common()]
        return "\n".join(lines) or "no calls"


def _precision(a: Any) -> str | None:
    """TF32 for float32 operands where the user has allowed torch to use it."""
    return "tf32" if a.dtype == torch.float32 and torch._C._get_cublas_allow_tf32() else None


def _same_type(*tensors: Any) -> None:
    if any(each.dtype != tensors[0].dtype for each in tensors):
        raise DTypeError(f"the operands are {', '.join(str(each.dtype) for each in tensors)}; they need one type")


def _fitting(out: Any, shape: tuple[int, ...]) -> Any:
    if tuple(out.shape) != shape:
        raise ShapeError(f"out: got shape {tuple(out.shape)} and the result has {shape}; torch resizes it")
    return out


def _axes(a: Any, b: Any, count: int) -> None:
    """Raise unless both operands have the axes that torch's operator takes, and one batch extent."""
    if a.dim() != count or b.dim() != count or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"a has {a.dim()} axes and b has {b.dim()}; torch's operator takes {count} of one batch")


def _product(axes: int) -> Callable[..., Any]:
    def serve(a: Any, b: Any, *, out: Any = None) -> Any:
        _axes(a, b, axes)
        _same_type(a, b)
        if out is not None:
            _same_type(a, out)
            _fitting(out, (*a.shape[:-1], b.shape[-1]))
        return matmul(a, b, out=out, precision=_precision(a))

    return serve


def _addition(axes: int) -> Callable[..., Any]:
    def serve(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
        _axes(a, b, axes)
        _same_type(a, b, c)
        if out is not None:
            _same_type(a, out)
            _fitting(out, (*a.shape[:-1], b.shape[-1]))
        addend = None if beta == 0 else c
        return matmul(a, b, addend, alpha=alpha, beta=None if beta == 0 else beta, out=out, precision=_precision(a))

    return serve


def _addition_in_place(axes: int) -> Callable[..., Any]:
    serve = _addition(axes)

    def serve_in_place(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        return serve(c, a, b, beta=beta, alpha=alpha, out=c)

    return serve_in_place


def _int_mm(a: Any, b: Any, *, out: Any = None) -> Any:
    if a.dtype != torch.int8 or b.dtype != torch.int8:
        raise DTypeError(f"the operands are {a.dtype}, {b.dtype}; _int_mm takes torch.int8")
    _axes(a, b, 2)
    if out is not None:
        _fitting(out, (a.shape[0], b.shape[1]))
    return matmul(a, b, out=out)


def _scaled_mm(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False, *, out: Any = None,
) -> Any:  # fmt: skip
    if scale_result is not None:
        raise UnsupportedError("scale_result: left to torch, which takes it and does not apply it (seen with 2.11)")
    target = out_dtype or (a.dtype if out is None else out.dtype)  # torch's default is the operands' type
    d = SCALED_MM(a, b, scale_a, scale_b, bias, None, target, use_fast_accum)
    return d if out is None else _fitting(out, tuple(d.shape)).copy_(d)


def _grouped_mm(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    return GROUPED_MM(a, b, offs, bias, out_dtype)


ROUTES: dict[str, dict[str, Callable[..., Any]]] = {
    "mm": {"mm": _product(2), "mm.out": _product(2)},
    "addmm": {"addmm": _addition(2), "addmm.out": _addition(2), "addmm_": _addition_in_place(2)},
    "bmm": {"bmm": _product(3), "bmm.out": _product(3)},
    "baddbmm": {"baddbmm": _addition(3), "baddbmm.out": _addition(3), "baddbmm_": _addition_in_place(3)},
    "_scaled_mm": {"_scaled_mm": _scaled_mm, "_scaled_mm.out": _scaled_mm},
    "_int_mm": {"_int_mm": _int_mm, "_int_mm.out": _int_mm},
    "_grouped_mm": {"_grouped_mm": _grouped_mm},
}
"""By the name that `override` takes: overloads of ``aten``, and what computes each."""

_KEYS = {"cuda": "CUDA", "cpu": "CPU"}


def _routed(name: str, serve: Callable[..., Any], original: Any, counts: Counts) -> Callable[..., Any]:
    """The kernel that is registered for one overload."""

    def kernel(keyset: Any, *args: Any, **options: Any) -> Any:
        recorded = torch.is_grad_enabled()  # autograd is above: the tensors may require gradients that it has recorded
        torch._C._set_grad_enabled(False)
        try:
            with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
                found = serve(*args, **options)
        except REFUSALS as error:
            counts.refuse(name, error)
        else:
            counts.serve(name)
            return found
        finally:
            torch._C._set_grad_enabled(recorded)
        return original.call_boxed(keyset, *args, **options)

    return kernel


_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCPU
)
_enabled: list[Any] = []
"""The library that holds the replaced kernels, while they are."""


def enable_override(operators: Iterable[str] | None = None, *, device_types: Iterable[str] = ("cuda",)) -> Counts:
    """Route torch's matrix products through warptile until `disable_override`, in the whole process.

    Args:
        operators: names of `ROUTES`; all by default. ``"_grouped_mm"`` may wait for the GPU
            (`warptile.torch.grouped_operator`).
        device_types: ``"cuda"``, and ``"cpu"`` to try it on the emulator.

    Returns:
        What is counted from now on.

    Raises:
        ArgumentError: an operator or device type that there is not, or torch is routed already.
        UnsupportedError: this torch has no way back to the original kernels.
    """
    names = tuple(ROUTES if operators is None else [operators] if isinstance(operators, str) else operators)
    devices = (device_types,) if isinstance(device_types, str) else tuple(device_types)
    for argument, given, known in (("operators", names, ROUTES), ("device_types", devices, _KEYS)):
        for name in given:
            if name not in known:
                raise ArgumentError(
                    f"{argument}: got {name!r}; it takes a list of {', '.join(map(repr, known))}, such as "
                    f"override({argument}=[{next(iter(known))!r}])"
                )
    if _enabled:
        raise ArgumentError("override is on already; call disable_override() first, or leave the other with-block")
    if not hasattr(torch.library, "get_kernel"):
        raise UnsupportedError(
            f"torch {torch.__version__} has no torch.library.get_kernel, by which refused calls go to the original "
            f"kernels; torch 2.11 has it. Or convert the model: warptile.torch.convert(model)"
        )
    counts = Counts()
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*[Oo]verriding a previously registered kernel")
        for device in devices:
            for name in names:
                for overload, serve in ROUTES[name].items():
                    try:
                        original = torch.library.get_kernel(f"aten::{overload}", _KEYS[device])
                    except RuntimeError:  # a torch without CUDA has no kernels to route there
                        continue
                    library.impl(
                        overload, _routed(f"aten::{overload}", serve, original, counts), _KEYS[device], with_keyset=True
                    )
    _enabled.append(library)
    return counts


def disable_override() -> None:
    """Give torch its own kernels back. Nothing happens where they are not routed."""
    if _enabled:
        _enabled.pop()._destroy()


@contextmanager
def override(operators: Iterable[str] | None = None, *, device_types: Iterable[str] = ("cuda",)) -> Iterator[Counts]:
    """Route torch's matrix products through warptile in a with-block; see `enable_override`.

    Yields:
        What is counted: ``with override() as counts: model(x)``, then ``print(counts)``.
    """
    counts = enable_override(operators, device_types=device_types)
    try:
        yield counts
    finally:
        disable_override()
