"""Dequantizing: writing quantized weights as rows of 16-bit elements, before a GEMM that reads them often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warptile.arch import Device
from warptile.dtypes import DType
from warptile.launch.access import Rows
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.problem import padded_stride
from warptile.quantization import Quantization, k_blocks, row_blocks

FILE = "repack/dequantizing_pass.cuh"
"""The kernel, below ``kernels/``."""

THREADS = 128
"""Of a CTA, which has one block."""


@dataclass(frozen=True)
class Dequantization:
    """How an operand is dequantized.

    Attributes:
        source: operand that is read, such as ``"B"``: packed blocks.
        n: rows of the weights.
        k: elements of a row.
        packed: how they are quantized.
        element: type that is written, that of the scales.
    """

    source: str
    n: int
    k: int
    packed: Quantization
    element: DType

    @property
    def target(self) -> str:
        """Name of the memory that is written."""
        return f"dequantized {self.source}"

    @property
    def target_stride(self) -> int:
        """Elements from one row to the next. What is between rows is undefined, and never read."""
        return padded_stride(self.k, self.element.bits // 8)

    @property
    def targets(self) -> tuple[tuple[str, int, Rows], ...]:
        """What is written: name, bytes, and which elements."""
        size = self.element.bits // 8
        stride_bytes = self.target_stride * size
        return ((self.target, self.n * stride_bytes, Rows(self.n, self.k, size, stride_bytes)),)

    @property
    def blocks(self) -> int:
        """Blocks of the weights."""
        return row_blocks(self.n) * k_blocks(self.k)

    @property
    def moved_bytes(self) -> int:
        """Bytes that are read and written."""
        return self.blocks * self.packed.block_bytes + self.n * self.k * self.element.bits // 8

    def seconds(self, device: Device) -> float:
        """Predicted time, without the launch."""
        return self.moved_bytes / device.dram_bytes_per_s

    @property
    def transposed(self) -> bool:
        """Whether rows become columns."""
        return False


def name_expression(copies: Sequence[Dequantization]) -> str:
    """The C++ name of the kernel."""
    (each,) = copies
    packed = each.packed
    arguments = f"{each.element.cuda}, {packed.bits}, {packed.group_in_block}, {str(packed.zero_point).lower()}"
    return f"warptile::dequantize_blocks<{arguments}>"


def launch(copies: Sequence[Dequantization], entry: str) -> LaunchSpec:
    """The launch of the compiled kernel whose lowered symbol is ``entry``."""
    (each,) = copies
    arguments = (
        Pointer(each.source),
        Pointer(each.target),
        Scalar("s64", each.target_stride),
        Scalar("s32", each.n),
        Scalar("s32", each.k),
        Scalar("s32", row_blocks(each.n)),
    )
    return LaunchSpec(entry=entry, grid=(each.blocks, 1, 1), block=(THREADS, 1, 1), arguments=arguments)
