"""Single-precision sums, products and fused multiply-adds as compiled ufuncs: one pass, one rounding, canonical NaN.

NumPy has no fused multiply-add, and would need a second pass for the NaN. Each is compiled when first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic

from warptile.emulator.lanes import Array

_NAN = np.uint32(0x7FFFFFFF).view(np.float32)


@cache
def compiled(name: str, type_name: str) -> Callable[..., Array]:
    """The ufunc called ``name`` (``add``, ``sub``, ``mul``, ``fma``) for ``"f32"`` or ``"f64"``.

    f64 results keep the NaN of the processor: PTX does not say which one comes out.
    """
    letter = "f4" if type_name == "f32" else "f8"
    functions: dict[tuple[str, str], Callable[..., Any]] = {
        ("add", "f32"): _add,
        ("sub", "f32"): _subtract,
        ("mul", "f32"): _multiply,
        ("fma", "f32"): _multiply_add,
        ("fma", "f64"): _multiply_add_f64,
    }
    function = functions.get((name, type_name))
    if function is None:
        return {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
    signature = f"{letter}({', '.join([letter] * (3 if name == 'fma' else 2))})"
    found: Callable[..., Array] = numba.vectorize([signature])(function)  # type: ignore[no-untyped-call]
    return found


@intrinsic
def _fused(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once: LLVM's ``fma``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return a(a, b, c), generate


def _add(a: Any, b: Any) -> Any:
    total = a + b
    return total if total == total else _NAN


def _subtract(a: Any, b: Any) -> Any:
    difference = a - b
    return difference if difference == difference else _NAN


def _multiply(a: Any, b: Any) -> Any:
    product = a * b
    return product if product == product else _NAN


def _multiply_add(a: Any, b: Any, c: Any) -> Any:
    result: Any = _fused(a, b, c)  # type: ignore[call-arg]
    return result if result == result else _NAN


def _multiply_add_f64(a: Any, b: Any, c: Any) -> Any:
    return _fused(a, b, c)  # type: ignore[call-arg]
