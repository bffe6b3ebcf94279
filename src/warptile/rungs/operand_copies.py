"""The launch before a GEMM that copies its operands in another form: the repacking pass or the splitting pass."""

from __future__ import annotations

from collections.abc import Sequence

from warptile.launch.spec import LaunchSpec
from warptile.rungs import operand_split, repack
from warptile.rungs.operand_split import Split
from warptile.rungs.repack import Repack

OperandCopy = Repack | Split
"""How one operand is copied. All copies of a launch are of one kind."""


def file_of(copies: Sequence[OperandCopy]) -> str:
    """Path of the pass below ``kernels/``."""
    return operand_split.FILE if isinstance(copies[0], Split) else repack.FILE


def name_expression(copies: Sequence[OperandCopy]) -> str:
    """The C++ name of the pass for one or two operands."""
    splits, repacks = by_kind(copies)
    return operand_split.name_expression(splits) if splits else repack.name_expression(repacks)


def launch(copies: Sequence[OperandCopy], entry: str) -> LaunchSpec:
    """The launch of the compiled pass whose lowered symbol is ``entry``."""
    splits, repacks = by_kind(copies)
    return operand_split.launch(splits, entry) if splits else repack.launch(repacks, entry)


def by_kind(copies: Sequence[OperandCopy]) -> tuple[list[Split], list[Repack]]:
    """Operands that are split, and those that are repacked."""
    return (
        [each for each in copies if isinstance(each, Split)],
        [each for each in copies if isinstance(each, Repack)],
    )
