"""The launch before a GEMM that copies its operands in another form: the repacking, the splitting or the dequantizing
pass."""

from __future__ import annotations

from collections.abc import Sequence

from warptile.launch.spec import LaunchSpec
from warptile.rungs import operand_dequantization, operand_split, repack
from warptile.rungs.operand_dequantization import Dequantization
from warptile.rungs.operand_split import Split
from warptile.rungs.repack import Repack

OperandCopy = Repack | Split | Dequantization
"""How one operand is copied. All copies of a launch are of one kind."""


def file_of(copies: Sequence[OperandCopy]) -> str:
    """Path of the pass below ``kernels/``."""
    files = {Repack: repack.FILE, Split: operand_split.FILE, Dequantization: operand_dequantization.FILE}
    return files[type(copies[0])]


def name_expression(copies: Sequence[OperandCopy]) -> str:
    """The C++ name of the pass for one or two operands."""
    splits, dequantizations, repacks = by_kind(copies)
    if dequantizations:
        return operand_dequantization.name_expression(dequantizations)
    return operand_split.name_expression(splits) if splits else repack.name_expression(repacks)


def launch(copies: Sequence[OperandCopy], entry: str) -> LaunchSpec:
    """The launch of the compiled pass whose lowered symbol is ``entry``."""
    splits, dequantizations, repacks = by_kind(copies)
    if dequantizations:
        return operand_dequantization.launch(dequantizations, entry)
    return operand_split.launch(splits, entry) if splits else repack.launch(repacks, entry)


def by_kind(copies: Sequence[OperandCopy]) -> tuple[list[Split], list[Dequantization], list[Repack]]:
    """Operands that are split, those that are dequantized, and those that are repacked."""
    return (
        [each for each in copies if isinstance(each, Split)],
        [each for each in copies if isinstance(each, Dequantization)],
        [each for each in copies if isinstance(each, Repack)],
    )
