"""What is special about calls of `warptile.matmul` with operands that were packed before: quantized weights, and sparse
and split matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from warptile.arrays.quantized_weights import QuantizedWeights
from warptile.arrays.sparse import METADATA, SparseMatrix
from warptile.arrays.split_matrix import SplitMatrix
from warptile.errors import UnsupportedError
from warptile.torch_route import requires_gradient

PACKED = frozenset((QuantizedWeights, SplitMatrix))
"""Types of a ``b`` that is packed. Each has an array ``packed`` and a ``key`` of what else a kernel depends on."""

PACKED_LEFT = frozenset((SparseMatrix, SplitMatrix))
"""Types of an ``a`` that is packed."""


NO_KEY: tuple[Any, ...] = ()
NOTHING_BESIDE: Mapping[str, Any] = {}
"""Of calls without packed operands."""


class Stored(NamedTuple):
    """What is in memory of the arrays of a call, which a bound call is found by.

    Attributes:
        arrays: A, B, C and ``out``.
        key: what else there is to say of packed operands.
        beside: further operands by name: metadata of a sparse A.
    """

    arrays: tuple[Any, Any, Any, Any]
    key: tuple[Any, ...] = NO_KEY
    beside: Mapping[str, Any] = NOTHING_BESIDE


def stored_as(a: Any, b: Any, c: Any, out: Any) -> Stored:
    """The arrays of a call as they are in memory.

    Args:
        a, b, c, out: as of `warptile.matmul`.
    """
    key, beside = NO_KEY, NOTHING_BESIDE
    if isinstance(b, QuantizedWeights | SplitMatrix):
        b, key = b.packed, (b.key,)
    if isinstance(a, SplitMatrix):
        a, key = a.packed, (*key, "a", a.key)
    elif isinstance(a, SparseMatrix):
        a, key, beside = a.values, (*key, "a", "2:4"), {METADATA: a.packed()}
    return Stored((a, b, c, out), key, beside)


_IN_GRADIENTS = {
    QuantizedWeights: ("quantized weights", "dequantized ones: matmul(x, w.dequantize().T)"),
    SplitMatrix: ("split matrices", "the matrix itself, such as matmul(x, w.matrix)"),
}
"""By type, what such operands are called, and what gradients are recorded of."""


def refuse_gradients(a: Any, b: Any, c: Any, out: Any, operands: Iterable[Any] = ()) -> None:
    """Raise where torch would record a gradient of this call.

    Args:
        a, b, c, out: as of `warptile.matmul`; ``a`` or ``b`` is packed.
        operands: of an epilogue.

    Raises:
        UnsupportedError: it would.
    """
    if out is not None:
        return
    names = [name for name, each in (("a", a), ("b", b), ("c", c)) if requires_gradient(each)]
    if names or any(map(requires_gradient, operands)):
        called, instead = _IN_GRADIENTS[type(b if type(b) in PACKED else a)]
        raise UnsupportedError(
            f"{names[0] if names else 'epilogue'}: it requires a gradient, which is not recorded for {called}; call "
            f"under torch.no_grad(), or multiply by {instead}"
        )


def joins_rows(a: Any, c: Any, out: Any) -> bool:
    """Whether the rows of all matrices of ``a`` can be those of one: there are several, and no other operand has
    them."""
    return out is None and len(getattr(a, "shape", ())) > 2 and (c is None or len(getattr(c, "shape", ())) <= 1)
