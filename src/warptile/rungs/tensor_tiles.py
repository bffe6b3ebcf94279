"""Sizes and constraints that the tensor-core families share: units, widths of accesses, a block's resources.

A *unit* is what a kernel addresses: an element, or for types narrower than a byte the byte that holds several.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from warptile.arch import MAX_THREADS
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config

VECTOR_BYTES = 16
MAX_STATIC_SHARED_BYTES = 48 * 1024
MAX_DYNAMIC_SHARED_BYTES = 227 * 1024
"""Most shared memory of a block on the architecture that has most; a plan checks its own architecture's."""


WARP_LANES = 32
REGISTERS_PER_SM = 65536
MAX_REGISTERS = 255


class BlockNeeds(Protocol):
    """What one CTA of a configuration takes from an SM."""

    @property
    def threads(self) -> int:
        """Threads of a block."""

    @property
    def registers(self) -> int:
        """Estimated registers of a thread."""

    @property
    def register_limit(self) -> int:
        """Registers that a thread may have."""

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""


def elements_per_unit(problem: Problem) -> int:
    """Operand elements in one unit: 1, or 2 (int4) or 8 (bits) to a byte."""
    return max(1, 8 // problem.a.dtype.bits)


def unit_bytes(problem: Problem) -> int:
    """Bytes of one unit."""
    return max(8, problem.a.dtype.bits) // 8


def width(operand: Operand, bytes_each: int) -> int:
    """Units of ``bytes_each`` that one access may move: as wide as the operand's alignment, 16 bytes at most."""
    return max(1, operand.alignment_bytes // bytes_each)


MOST_STORED = 8
"""Elements that one access stores at most: float32 accumulators of as many are read by two accesses."""


def output_width(problem: Problem) -> int:
    """Elements of C and D that one access may move: at most `MOST_STORED`."""
    each = problem.d.dtype.bits // 8
    return min(MOST_STORED, *(width(operand, each) for operand in (problem.c, problem.d) if operand is not None))


def round_up(value: int, multiple: int) -> int:
    """The least multiple of ``multiple`` that is not below ``value``."""
    return -(-value // multiple) * multiple


def register_limit(threads: int, min_blocks: int) -> int:
    """Registers a thread may have with ``min_blocks`` CTAs on an SM: its four parts have a quarter of the
    registers and of a block's warps each, and give them out in eights."""
    return min(MAX_REGISTERS, REGISTERS_PER_SM // (round_up(threads, 4 * WARP_LANES) * min_blocks) // 8 * 8)


def packing_reason(problem: Problem) -> str | None:
    """Why types narrower than a byte cannot be addressed byte by byte along K, or None."""
    packed, name = elements_per_unit(problem), problem.a.dtype.name
    if packed == 1:
        return None
    if problem.a.major != "row":
        return f"A is stored as [K, M]; {name} fragments need A as [M, K], a row's elements side by side"
    if problem.b.major != "col":
        return f"B is [K, N]; {name} fragments need B stored as [N, K], a column's elements side by side"
    extents = {
        "K": problem.k,
        "A's leading dimension": problem.a.leading_dimension,
        "B's leading dimension": problem.b.leading_dimension,
    }
    for what, extent in extents.items():
        if extent % packed:
            return f"{what} is {extent}; {name} packs {packed} elements into a byte and needs a multiple of {packed}"
    return None


def shape_reason(shapes: dict[str, tuple[tuple[int, int, int], ...]], problem: Problem, config: Config) -> str | None:
    """Why FM, FN, FK are none of the ``shapes`` of the operands' type, or None."""
    shape = (config["FM"], config["FN"], config["FK"])
    known = shapes[problem.a.dtype.name]
    if shape in known:
        return None
    listed = ", ".join("m{}n{}k{}".format(*each) for each in known)
    return f"FM, FN, FK are {shape}; {problem.a.dtype.name} has {listed}"


def multiple_reason(config: Config, pairs: Iterable[tuple[str, str]]) -> str | None:
    """Why the first key of a pair is no multiple of the second, or None."""
    for outer, inner in pairs:
        if config[outer] % config[inner]:
            return f"{outer} is {config[outer]}; it must be a multiple of {inner}, which is {config[inner]}"
    return None


def stages_reason(config: Config) -> str | None:
    """Why the ring is too short, or None."""
    if config["STAGES"] < 2:
        return f"STAGES is {config['STAGES']}; a ring needs at least 2: one to fill beside the one that is read"
    return None


def resource_reason(block: BlockNeeds, max_shared_bytes: int) -> str | None:
    """Why a block needs more threads, registers or shared memory than there are, or None."""
    if block.threads > MAX_THREADS:
        return f"the block has {block.threads} threads; at most {MAX_THREADS}: take larger warp tiles"
    if block.registers > block.register_limit:
        return (
            f"a thread needs about {block.registers} registers and has {block.register_limit}; "
            "take smaller warp tiles or fewer warps"
        )
    if block.shared_bytes > max_shared_bytes:
        return (
            f"the block needs {block.shared_bytes} bytes of shared memory; at most {max_shared_bytes}: "
            "take smaller tiles or fewer stages"
        )
    return None
