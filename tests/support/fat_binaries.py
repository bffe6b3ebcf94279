"""Fat binaries as nvcc writes them, from PTX: for tests of programs without nvcc."""

import struct

from warptile.programs.fat_binary import HEADER, MAGIC


def fat_binary(*entries):
    """A fat binary of entries (kind, flags, content, size when decompressed or 0)."""
    body = b""
    for kind, flags, content, size in entries:
        stored = content + bytes(-len(content) % 8)
        packed = len(content) if size else 0
        body += struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(stored), packed, 0, 0, 9, 90, 0, 0, flags, 0, size)
        body += stored
    return HEADER.pack(MAGIC, 1, HEADER.size, len(body)) + body


def plain(ptx):
    """An entry of PTX as it is."""
    return 1, 0x11, ptx.encode() + b"\0", 0


def lz4_of_literals(content):
    """An LZ4 block that repeats its first 8 bytes' worth where it can: literals, then one match if the rest repeats."""
    token, rest = (15, len(content) - 15) if len(content) >= 15 else (len(content), 0)
    made = bytes([token << 4])
    if token == 15:
        while rest >= 255:
            made, rest = made + b"\xff", rest - 255
        made += bytes([rest])
    return made + content
