"""What people call: torch's own product, on the very memory that ours works on, with its settings for the types asked.

torch.matmul multiplies float16, bfloat16 and float32; flags select tf32 and float16 accumulation, 8-bit floats are
``torch._scaled_mm`` (with scales of one), 8-bit integers ``torch._int_mm``, a batch ``torch.bmm``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from warptile.bench.protocol.measurements import ProblemKey
from warptile.dtypes import dtype
from warptile.errors import UnsupportedError

Call = Callable[[Any, Any, Any], Any]
"""Queues A B, maybe into D: tensors as [M, K], [K, N] and [M, N], or with a batch before them."""

NAMES = {"tfloat32": "float32", "float8_e4m3": "float8_e4m3fn"}
"""torch's names of element types, where they are not ours."""

SWITCHES = {"tfloat32": "allow_tf32", "float16": "allow_fp16_accumulation"}
"""Switches of torch.backends.cuda.matmul."""


class _Memory:
    """Bytes on the GPU for whoever reads the CUDA Array Interface (version 3)."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self._address, self._size_bytes = address, size_bytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self._size_bytes,), "typestr": "|u1", "data": (self._address, False), "version": 3}


@dataclass(frozen=True)
class TorchLaunch:
    """torch's product over sets of operands, and what it is called."""

    torch: Any
    call: Call
    name: str
    operands: tuple[tuple[Any, Any, Any], ...]

    @property
    def sets(self) -> int:
        """Sets of operands."""
        return len(self.operands)

    def __call__(self, index: int, stream: int) -> None:
        """Queue one product on a stream."""
        with self.torch.cuda.stream(self.torch.cuda.ExternalStream(stream)):
            self.call(*self.operands[index])


def torch_launch(key: ProblemKey, pointers: Sequence[Mapping[str, int]]) -> TorchLaunch:
    """torch's product of the operands at some addresses: of each set those of ``A`` (all of it where it is sparse),
    ``B`` and ``D``.

    Raises:
        UnsupportedError: torch is not installed, or has no product of these types.
    """
    if key.accumulator not in ("float32", "float32_fast", "float16", "int32"):
        raise UnsupportedError(f"torch has no product of {key.dtype} with {key.accumulator} accumulators")
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise UnsupportedError("torch is not installed; pip install 'warptile[torch]' adds it") from error
    name, call = _product(torch, key)
    operands = tuple(_operands(torch, key, at) for at in pointers)
    return TorchLaunch(torch, call, name, operands)


def _operands(torch: Any, key: ProblemKey, at: Mapping[str, int]) -> tuple[Any, Any, Any]:
    a = _matrices(torch, at["A"], key.dtype, (key.batch, key.m, key.k), key.a_major)
    b = _matrices(torch, at["B"], key.dtype, (key.batch, key.k, key.n), key.b_major)
    return a, b, _matrices(torch, at["D"], key.out, (key.batch, key.m, key.n), "row")


def _matrices(torch: Any, address: int, element: str, shape: tuple[int, int, int], major: str) -> Any:
    """A tensor over memory that is ours: [rows, columns], with a batch of more than one before them."""
    batch, rows, columns = shape
    memory = _Memory(address, batch * rows * columns * dtype(element).bits // 8)
    flat = torch.as_tensor(memory, device="cuda").view(getattr(torch, NAMES.get(element, element)))
    lines = (rows, columns) if major == "row" else (columns, rows)
    stored = flat.view(*(lines if batch == 1 else (batch, *lines)))
    return stored if major == "row" else stored.transpose(-1, -2)


def _product(torch: Any, key: ProblemKey) -> tuple[str, Call]:
    """What torch calls the product of these types, and the call."""
    out = getattr(torch, key.out)
    if key.dtype == "float8_e4m3":
        one, fast = torch.ones((), device="cuda"), key.accumulator == "float32_fast"
        return "torch._scaled_mm", lambda a, b, d: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=fast
        )
    if key.dtype == "int8":
        return "torch._int_mm", lambda a, b, d: torch._int_mm(a, b, out=d)
    if key.dtype in ("bfloat16", "float16") and key.out == "float32":
        return "torch.mm, out_dtype=float32", lambda a, b, d: torch.mm(a, b, out_dtype=out)
    if key.dtype not in ("bfloat16", "float16", "float32", "tfloat32"):
        raise UnsupportedError(f"torch has no product of {key.dtype}")
    multiply = torch.bmm if key.batch > 1 else torch.matmul
    name = "torch.bmm" if key.batch > 1 else "torch.matmul"
    switch = SWITCHES.get(key.dtype) if key.dtype == "tfloat32" or key.accumulator == "float16" else None
    if switch is None:
        return name, lambda a, b, d: multiply(a, b, out=d)
    settings = torch.backends.cuda.matmul
    if not hasattr(settings, switch):
        raise UnsupportedError(f"torch {torch.__version__} has no {switch}")

    def switched(a: Any, b: Any, d: Any) -> None:
        with _set(settings, switch):
            multiply(a, b, out=d)

    return f"{name}, {switch}", switched


@contextmanager
def _set(settings: Any, switch: str) -> Iterator[None]:
    before = getattr(settings, switch)
    setattr(settings, switch, True)
    try:
        yield
    finally:
        setattr(settings, switch, before)
