"""Buffers of XLA programs, and what a program says of a matmul of theirs.

A program (what ``jax.jit`` compiles) holds a `ProgramCall` as text, an attribute of its custom call. XLA hands the text
back with the addresses of the buffers each time it runs the program. Nothing in the text depends on the process, so
that programs can be exported, serialized and kept in JAX's compilation cache.
"""

from __future__ import annotations

import ctypes
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from warptile.arrays.array_view import ArrayView, Shape, row_major
from warptile.dtypes import DTYPES


@dataclass(frozen=True)
class StoredArray:
    """One buffer of a program.

    Attributes:
        dtype: warptile's name of the element type.
        shape: extents.
        major: ``"row"``, or ``"col"`` where each matrix in the last two axes is stored by columns.
    """

    dtype: str
    shape: Shape
    major: str = "row"

    @property
    def strides(self) -> Shape:
        """Elements from one index to the next; XLA's buffers have no gaps."""
        if self.major == "row":
            return row_major(self.shape)
        *batch, rows, columns = self.shape
        *leading, _, _ = row_major((*batch, columns, rows))
        return (*leading, 1, max(rows, 1))

    def view(
        self, name: str, pointer: int = 0, device: int | None = None, stream: int = 0, owner: Any = None
    ) -> ArrayView:
        """The buffer at an address. Without one it is for planning, and taken to be aligned as XLA's are."""
        return ArrayView(name, owner, "xla", pointer, self.shape, self.strides, DTYPES[self.dtype], device, stream)

    def numpy(self, pointer: int) -> np.ndarray[Any, Any]:
        """The buffer in host memory, as an array."""
        storage = np.dtype(DTYPES[self.dtype].numpy)
        count = prod(self.shape)
        if count == 0:  # whose address may be null
            return np.empty(self.shape, storage)
        memory = (ctypes.c_uint8 * (count * storage.itemsize)).from_address(pointer)
        flat: np.ndarray[Any, Any] = np.ctypeslib.as_array(memory).view(storage)
        if self.major == "row":
            return flat.reshape(self.shape)
        *batch, rows, columns = self.shape
        return flat.reshape(*batch, columns, rows).swapaxes(-1, -2)


@dataclass(frozen=True, eq=False)
class ProgramCall:
    """One matmul of a program.

    Attributes:
        operands: A and B, and C if there is one.
        result: D.
        options: keyword arguments of `warptile.matmul` other than arrays; a ``config`` as pairs of name and value.
        views: A, B, C and D at the addresses of earlier calls, by place and addresses.
    """

    operands: tuple[StoredArray, ...]
    result: StoredArray
    options: dict[str, Any]
    views: dict[Any, tuple[ArrayView, ArrayView, ArrayView | None, ArrayView]] = field(default_factory=dict, repr=False)

    def text(self) -> str:
        """The call as JSON; equal calls have equal texts."""
        said = {"operands": [asdict(each) for each in self.operands], "result": asdict(self.result)}
        return json.dumps(said | {"options": self.options}, sort_keys=True)

    @staticmethod
    def parsed(text: bytes | str) -> ProgramCall:
        """The inverse of `text`."""
        said = json.loads(text)
        operands = [_stored_array(each) for each in said["operands"]]
        return ProgramCall(tuple(operands), _stored_array(said["result"]), said["options"])

    @cached_property
    def keywords(self) -> dict[str, Any]:
        """The options, as `warptile.matmul` takes them."""
        config = self.options.get("config")
        return self.options | {"config": None if config is None else MappingProxyType(dict(config))}

    def at(
        self, ordinal: int | None, stream: int, addresses: tuple[int, ...]
    ) -> tuple[ArrayView, ArrayView, ArrayView | None, ArrayView]:
        """Views of A, B, C and D in a GPU's memory, or (``ordinal`` None) on the host.

        Args:
            ordinal: CUDA ordinal.
            stream: handle.
            addresses: of the operands and the result.
        """
        key = ordinal, stream, addresses
        found = self.views.get(key)
        if found is None:
            if len(self.views) >= MOST_VIEWS:
                self.views.clear()
            made = [
                each.view(name, address, ordinal, stream, self)
                for each, name, address in zip(self.operands, "abc", addresses, strict=False)
            ]
            a, b, c = made if len(made) == 3 else (*made, None)
            assert a is not None
            assert b is not None
            found = a, b, c, self.result.view("out", addresses[-1], ordinal, stream, self)
            self.views[key] = found
        return found


MOST_VIEWS = 64
"""Sets of addresses whose views are kept; XLA gives a program mostly the same ones."""


def _stored_array(said: dict[str, Any]) -> StoredArray:
    return StoredArray(said["dtype"], tuple(said["shape"]), said["major"])
