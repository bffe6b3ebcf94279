"""Buffers of XLA programs, and what a program says of a matmul of theirs.

A program (what ``jax.jit`` compiles) holds a `ProgramCall` as text, an attribute of its custom call. XLA hands the text
back with the addresses of the buffers each time it runs the program. Nothing in the text depends on the process, so
that programs can be exported, serialized and kept in JAX's compilation cache.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from warptile.arrays.array_view import ArrayView, Shape, row_major
from warptile.dtypes import DTYPES
from warptile.epilogue.epilogue_program import Program
from warptile.epilogue.program_text import program_of, replayed


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


@dataclass(frozen=True)
class ProgramEpilogue:
    """The epilogue of a matmul of a program.

    Attributes:
        text: as of `warptile.epilogue.program_text.text_of`.
        tensors: names of operands that are buffers.
        numbers: names and values of the others, which are the program's.
    """

    text: str
    tensors: tuple[str, ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()

    @property
    def program(self) -> Program:
        """The epilogue itself."""
        return program_of(self.text)


class CallArrays(NamedTuple):
    """The arrays of a matmul of a program.

    Attributes:
        a, b, c: operands.
        out: the result, or a tuple of results.
        tensors: the epilogue's operands by name.
    """

    a: Any
    b: Any
    c: Any
    out: Any
    tensors: dict[str, Any]


@dataclass(frozen=True, eq=False)
class ProgramCall:
    """One matmul of a program.

    Attributes:
        operands: A and B, C if there is one, and the tensors of the epilogue.
        result: D.
        options: keyword arguments of `warptile.matmul` other than arrays; a ``config`` as pairs of name and value.
        epilogue: None where there is none.
        further: outputs of the epilogue after D.
        views: those at the addresses of earlier calls, by place and addresses.
    """

    operands: tuple[StoredArray, ...]
    result: StoredArray
    options: dict[str, Any]
    epilogue: ProgramEpilogue | None = None
    further: tuple[StoredArray, ...] = ()
    views: dict[Any, CallArrays] = field(default_factory=dict, repr=False)

    def text(self) -> str:
        """The call as JSON; equal calls have equal texts."""
        said = {"operands": [asdict(each) for each in self.operands], "result": asdict(self.result)}
        if self.epilogue is not None:
            said |= {"epilogue": asdict(self.epilogue), "further": [asdict(each) for each in self.further]}
        return json.dumps(said | {"options": self.options}, sort_keys=True)

    @staticmethod
    def parsed(text: bytes | str) -> ProgramCall:
        """The inverse of `text`."""
        said = json.loads(text)
        operands, further = ([_stored_array(each) for each in said.get(name, ())] for name in ("operands", "further"))
        of = said.get("epilogue")
        epilogue = of and ProgramEpilogue(of["text"], tuple(of["tensors"]), tuple(map(tuple, of["numbers"])))
        return ProgramCall(tuple(operands), _stored_array(said["result"]), said["options"], epilogue, tuple(further))

    @cached_property
    def keywords(self) -> dict[str, Any]:
        """The options, and what is known of the epilogue, as `warptile.matmul` takes them."""
        config = self.options.get("config")
        said = self.options | {"config": None if config is None else MappingProxyType(dict(config))}
        if self.epilogue is not None:
            said |= {"epilogue": replayed(self.epilogue.program), **dict(self.epilogue.numbers)}
        return said

    def arrays(self, of_operands: Sequence[Any], of_results: Sequence[Any]) -> CallArrays:
        """Operands and results, in the order in which the program has them, as `warptile.matmul` takes them."""
        names = () if self.epilogue is None else self.epilogue.tensors
        a, b, *addend = of_operands[: len(of_operands) - len(names)]
        tensors = dict(zip(names, of_operands[len(of_operands) - len(names) :], strict=True))
        out = of_results[0] if len(of_results) == 1 else tuple(of_results)
        return CallArrays(a, b, addend[0] if addend else None, out, tensors)

    def at(self, ordinal: int | None, stream: int, addresses: tuple[int, ...]) -> CallArrays:
        """Views of all arrays in a GPU's memory, or (``ordinal`` None) on the host.

        Args:
            ordinal: CUDA ordinal.
            stream: handle.
            addresses: of the operands and the results.
        """
        key = ordinal, stream, addresses
        found = self.views.get(key)
        if found is None:
            if len(self.views) >= MOST_VIEWS:
                self.views.clear()
            count = len(self.operands)
            tensors = () if self.epilogue is None else self.epilogue.tensors
            names = (*"abc"[: count - len(tensors)], *tensors)
            operands = [
                each.view(name, address, ordinal, stream, self)
                for each, name, address in zip(self.operands, names, addresses[:count], strict=True)
            ]
            results = [
                each.view("out", address, ordinal, stream, self)
                for each, address in zip((self.result, *self.further), addresses[count:], strict=True)
            ]
            found = self.arrays(operands, results)
            self.views[key] = found
        return found

    def in_host_memory(self, addresses: Sequence[int]) -> CallArrays:
        """All arrays as NumPy's; arguments as of `at`."""
        stored = (*self.operands, self.result, *self.further)
        arrays = [each.numpy(address) for each, address in zip(stored, addresses, strict=True)]
        return self.arrays(arrays[: len(self.operands)], arrays[len(self.operands) :])


MOST_VIEWS = 64
"""Sets of addresses whose views are kept; XLA gives a program mostly the same ones."""


def _stored_array(said: dict[str, Any]) -> StoredArray:
    return StoredArray(said["dtype"], tuple(said["shape"]), said["major"])
