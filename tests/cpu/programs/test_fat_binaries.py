"""PTX in executables: plain and compressed, for several architectures."""

import ctypes

import pytest

from fat_binaries import fat_binary, lz4_of_literals, plain
from warptile.errors import UnsupportedError
from warptile.programs.compression import lz4_block, zstandard_frame
from warptile.programs.fat_binary import FatPtx, chosen, ptx_of, size_of

PTX = ".version 9.0\n.target {target}\n.address_size 64\n" + "// so that there is something to compress\n" * 20


def test_all_ptx_of_a_file_is_found_beside_machine_code():
    old, new = PTX.format(target="sm_80"), PTX.format(target="sm_90a")
    first = fat_binary((2, 0, b"\x7fELF machine code", 0), plain(old))
    second = fat_binary(plain(new))
    found = ptx_of(first + bytes(-len(first) % 8) + second)
    assert [(each.target, each.text.decode()) for each in found] == [("sm_80", old), ("sm_90a", new)]
    assert size_of(first) == len(first)
    assert ptx_of(b"") == []


def test_what_the_driver_would_compile():
    ptx = {name: FatPtx(name, b"") for name in ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100a")}
    every = list(ptx.values())
    assert chosen(every, 90) is ptx["sm_90a"]
    assert chosen(every, 89) is ptx["sm_80"]
    assert chosen(every, 120) is ptx["sm_90"]
    assert chosen([ptx["sm_90a"]], 100) is None
    assert chosen([ptx["sm_80"]], 75) is None


def test_lz4_blocks():
    text = PTX.format(target="sm_80").encode()
    assert lz4_block(lz4_of_literals(text), len(text)) == text
    # 4 literals, then a match of 4 + 15 + 255 + 6 bytes at distance 2; then 5 literals.
    block = b"\x4fabcd\x02\x00\xff\x06\x50vwxyz"
    assert lz4_block(block, 4 + 280 + 5) == b"abcd" + b"cd" * 140 + b"vwxyz"
    entry = (1, 0x2011, lz4_of_literals(text), len(text))
    assert ptx_of(fat_binary(entry))[0].text == text


def test_zstandard_frames():
    text = PTX.format(target="sm_80").encode()
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        pytest.skip("no libzstd to compress with")
    library.ZSTD_compress.restype = ctypes.c_size_t
    made = ctypes.create_string_buffer(2000)
    size = library.ZSTD_compress(made, ctypes.c_size_t(2000), text, ctypes.c_size_t(len(text)), 3)
    assert zstandard_frame(made.raw[:size], len(text)) == text
    assert ptx_of(fat_binary((1, 0x8011, made.raw[:size], len(text))))[0].text == text
    with pytest.raises(UnsupportedError, match="damaged frame"):
        zstandard_frame(made.raw[: size // 2], len(text))


def test_an_unknown_compression_is_told():
    with pytest.raises(UnsupportedError, match=r"unknown way \(flags 0x40000011\); .* -no-compress"):
        ptx_of(fat_binary((1, 0x40000011, b"....", 100)))
