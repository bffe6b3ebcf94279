"""Operands that only warptile's functions multiply, and what their operator `@` says instead."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from warptile.errors import ArgumentTypeError


class NoOperator:
    """Base of operands that are no arrays: their `@`, on either side, names the call that multiplies them.

    Attributes:
        product: that call and what it computes.
    """

    product: ClassVar[str]
    __array_ufunc__ = None  # NumPy leaves `array @ operand` to `__rmatmul__`

    def __matmul__(self, other: Any) -> NoReturn:
        self._refuse()

    def __rmatmul__(self, other: Any) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ArgumentTypeError(f"{type(self).__name__} has no operator @; write {self.product}")
