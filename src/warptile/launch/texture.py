"""Texture and surface objects: memory that kernels read by coordinates."""

from __future__ import annotations

import struct
from dataclasses import dataclass

WRAP, CLAMP, MIRROR, BORDER = range(4)
"""``cudaTextureAddressMode``: what is read outside of a texture."""

SIGNED, UNSIGNED, FLOAT = range(3)
"""``cudaChannelFormatKind``."""

TEXTURE_BYTES = 144
"""Size of a texture object in memory: its handle is the address of these bytes, the emulator's own format."""

_FORMAT = struct.Struct("<Q9Q3I5I4f")
_MAGIC = 0x5458_5454_454C_4954


@dataclass(frozen=True)
class Texture:
    """A texture object, or a surface object.

    Attributes:
        address: of the first texel.
        width, height, depth: texels along x, y and z; 0 for dimensions that it does not have.
        layers: 0 if it is not layered.
        pitch: bytes from row to row.
        channels: of a texel: 1, 2 or 4.
        bits: of a channel: 8, 16 or 32.
        kind: of a channel: `SIGNED`, `UNSIGNED` or `FLOAT`.
        surface: it is a surface object, which is read and written as bytes.
        outside: of each dimension `WRAP`, `CLAMP`, `MIRROR` or `BORDER`.
        linear: texels are interpolated.
        normalized: coordinates go from 0 to 1.
        as_float: integers of 8 and 16 bits are read as floats of -1 or 0 to 1.
        border: what is read outside with `BORDER`.
    """

    address: int
    width: int
    height: int
    depth: int
    layers: int
    pitch: int
    channels: int
    bits: int
    kind: int
    surface: bool = False
    outside: tuple[int, int, int] = (BORDER, BORDER, BORDER)
    linear: bool = False
    normalized: bool = False
    as_float: bool = False
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    @property
    def texel_bytes(self) -> int:
        """Bytes of a texel."""
        return self.channels * self.bits // 8

    @property
    def rank(self) -> int:
        """Dimensions, without layers."""
        return 1 + bool(self.height) + bool(self.depth)

    @property
    def extents(self) -> tuple[int, ...]:
        """Texels along x, y and z, as far as it has these."""
        return (self.width, self.height, self.depth)[: self.rank]

    @property
    def shape(self) -> str:
        """As instructions call it: ``"2d"``, ``"a2d"`` with layers."""
        return f"{'a' if self.layers else ''}{self.rank}d"

    @property
    def slice_bytes(self) -> int:
        """Bytes from slice to slice, or from layer to layer."""
        return self.pitch * max(self.height, 1)

    def encode(self) -> bytes:
        """The object as bytes of memory."""
        return _FORMAT.pack(
            _MAGIC, self.address, self.width, self.height, self.depth, self.layers, self.pitch, self.channels,
            self.bits, self.kind, *self.outside, self.surface, self.linear, self.normalized, self.as_float, 0,
            *self.border,
        ).ljust(TEXTURE_BYTES, b"\0")  # fmt: skip

    @classmethod
    def decode(cls, raw: bytes) -> Texture | None:
        """The object in bytes of memory; None if there is none."""
        magic, *numbers = _FORMAT.unpack_from(raw)
        if magic != _MAGIC:
            return None
        address, width, height, depth, layers, pitch, channels, bits, kind, x, y, z = numbers[:12]
        surface, linear, normalized, as_float = map(bool, numbers[12:16])
        first, second, third, fourth = numbers[17:]
        return cls(
            address, width, height, depth, layers, pitch, channels, bits, kind, surface, (x, y, z), linear, normalized,
            as_float, (first, second, third, fourth),
        )  # fmt: skip
