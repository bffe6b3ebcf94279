"""The PTX parser: text to data classes."""

from warptile.ptx.parser import parse

__all__ = ["parse"]
