"""The format of quantized weights: what a kernel has to know of them, and how many bytes they take.

Weights of (N, K) are cut into blocks of `BLOCK_ROWS` rows of N and `BLOCK_K` along K. A block is contiguous: codes in
the order in which the threads of a warpgroup hold them as operand A of ``wgmma``, then scales, then zero points. Blocks
of the same part of K follow each other, so that one bulk copy loads any number of them. What the codes and zero points
are: `warptile.arrays.quantized_weights`.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_ROWS, BLOCK_K = 64, 128
"""Extents of a block along N and K."""

PADDED_ROWS = 128
"""N is padded to a multiple of this."""

BITS = (4, 8)
SCALE_BYTES = 2
"""Of a scale and of a zero point, which have the type of the activations."""


@dataclass(frozen=True)
class Quantization:
    """How weights are quantized.

    Attributes:
        bits: of a code, 4 or 8.
        group_size: neighbours along K that share a scale: 32, 64, or a multiple of 128.
        zero_point: groups have zero points, too.
    """

    bits: int
    group_size: int
    zero_point: bool

    @property
    def group_in_block(self) -> int:
        """Neighbours along K of one block that share a scale."""
        return min(self.group_size, BLOCK_K)

    @property
    def groups_of_block(self) -> int:
        """Scales of a row in a block. A group that is longer than a block repeats its scale in each."""
        return BLOCK_K // self.group_in_block

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes of a block."""
        return BLOCK_ROWS * BLOCK_K * self.bits // 8

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales of a block, and of its zero points."""
        return self.groups_of_block * BLOCK_ROWS * SCALE_BYTES

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return self.code_bytes + self.scale_bytes * (1 + self.zero_point)

    def __str__(self) -> str:
        return f"int{self.bits} in groups of {self.group_size}{' with zero points' if self.zero_point else ''}"


def row_blocks(n: int) -> int:
    """Blocks along N, of padded weights."""
    return -(-n // PADDED_ROWS) * (PADDED_ROWS // BLOCK_ROWS)


def k_blocks(k: int) -> int:
    """Blocks along K."""
    return -(-k // BLOCK_K)
