"""Decompression of what nvcc packs into executables: LZ4 blocks and Zstandard frames."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from warptile.errors import UnsupportedError


def lz4_block(content: bytes, size: int) -> bytes:
    """A block of LZ4 as ``size`` bytes (LZ4 Block Format Description)."""
    made = bytearray()
    place = 0
    while place < len(content) and len(made) < size:
        token = content[place]
        length, place = _length(content, place + 1, token >> 4)
        made += content[place : place + length]
        place += length
        if place >= len(content) or len(made) >= size:
            break
        distance = content[place] | content[place + 1] << 8
        length, place = _length(content, place + 2, token & 15)
        length += 4
        start = len(made) - distance
        while length > 0:  # what is copied may overlap what it makes
            part = made[start : start + length]
            made += part
            length -= len(part)
    return bytes(made[:size])


def _length(content: bytes, place: int, length: int) -> tuple[int, int]:
    """A length that goes on in further bytes if its four bits are all ones, and where it ends."""
    if length < 15:
        return length, place
    while True:
        length += content[place]
        place += 1
        if content[place - 1] != 255:
            return length, place


def zstandard_frame(content: bytes, size: int) -> bytes:
    """A frame of Zstandard as ``size`` bytes, by Python's own module, the package ``zstandard`` or the library libzstd.

    Raises:
        UnsupportedError: there is none of them, or the frame is damaged.
    """
    for name in ("compression.zstd", "zstandard"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        decompressor = module.ZstdDecompressor()
        return bytes(decompressor.decompress(content))[:size]
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        raise UnsupportedError(
            "the executable's PTX is compressed by Zstandard, which nothing here reads: compile it with nvcc "
            "-no-compress, or install it: python3 -m pip install zstandard"
        ) from None
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    made = ctypes.create_string_buffer(size)
    if library.ZSTD_decompress(made, size, content, len(content)) != size:
        raise UnsupportedError(
            "the executable's PTX is a damaged frame of Zstandard; compile it with nvcc -no-compress"
        )
    return made.raw
