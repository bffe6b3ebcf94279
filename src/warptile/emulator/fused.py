"""Single-precision sums, products and fused multiply-adds as compiled ufuncs: one pass, one rounding, canonical NaN.

NumPy has no fused multiply-add, and would need a second pass for the NaN. The functions are compiled when first asked
for and kept on disk by numba; importing numba is put off until then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from warptile.emulator.lanes import Array

_NAN = np.uint32(0x7FFFFFFF).view(np.float32)


@cache
def compiled(name: str, type_name: str) -> Callable[..., Array]:
    """The ufunc called ``name`` (``add``, ``sub``, ``mul``, ``fma``) for ``"f32"`` or ``"f64"``.

    f64 results keep the NaN of the processor: PTX does not say which one comes out.
    """
    if type_name == "f64" and name != "fma":
        return {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
    import numba

    letter = "f4" if type_name == "f32" else "f8"
    signature = f"{letter}({', '.join([letter] * (3 if name == 'fma' else 2))})"
    function = {"add": _add, "sub": _subtract, "mul": _multiply}.get(name) or _fused(type_name)
    try:
        found: Callable[..., Array] = numba.vectorize([signature], cache=True)(function)
    except RuntimeError:  # numba finds no folder that it may write to
        found = numba.vectorize([signature])(function)
    return found


def _add(a: Any, b: Any) -> Any:
    total = a + b
    return total if total == total else _NAN


def _subtract(a: Any, b: Any) -> Any:
    difference = a - b
    return difference if difference == difference else _NAN


def _multiply(a: Any, b: Any) -> Any:
    product = a * b
    return product if product == product else _NAN


def _fused(type_name: str) -> Callable[[Any, Any, Any], Any]:
    from numba.extending import intrinsic

    @intrinsic
    def fused(context: Any, a: Any, b: Any, c: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.fma(*arguments)

        return a(a, b, c), generate

    if type_name == "f64":

        def multiply_add_f64(a: Any, b: Any, c: Any) -> Any:
            return fused(a, b, c)

        return multiply_add_f64

    def multiply_add(a: Any, b: Any, c: Any) -> Any:
        result = fused(a, b, c)
        return result if result == result else _NAN

    return multiply_add
