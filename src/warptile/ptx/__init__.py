"""PTX text to records: the lexer, the parser and what they return."""

from warptile.ptx.parser import parse

__all__ = ["parse"]
