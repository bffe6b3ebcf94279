"""A `wgmma` matrix descriptor to edit: its fields, its 64 bits, and the addresses of the core matrices that it names.

The places of the fields in the 64 bits are found by encoding; the pattern of the addresses is
`warptile.isa.wgmma.pattern`, as few numbers for each layout. What the script adds, three products and one XOR, is
compared with `Pattern.addresses` by a test.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from warptile.figures.bank_map import wavefront_words
from warptile.figures.figure import Cell, DataTable, Figure, joined
from warptile.isa.swizzle import CHUNK_BYTES, LINE_BYTES
from warptile.isa.wgmma import SWIZZLES, Descriptor, pattern

CHUNKS = 8
"""Chunks of a core matrix."""

WORD_BITS = 64

FIELDS = (
    ("start", "start address", "address of the first byte in shared memory"),
    ("leading", "leading byte offset", "see the addresses below"),
    ("stride", "stride byte offset", "see the addresses below"),
    (
        "base_offset",
        "base offset",
        "at which of eight 128-byte lines the swizzle pattern starts; 0 at multiples of 1024",
    ),
    ("swizzle", "swizzle mode", "bytes of a row that is permuted"),
)
"""Attributes of a `Descriptor`, what they are called, and what they mean."""


@dataclass(frozen=True)
class FieldBits:
    """Where a field is in the 64 bits.

    Attributes:
        low: its lowest bit.
        bits: how many it has.
        unit: what one of it stands for, in bytes; 1 for numbers.
    """

    low: int
    bits: int
    unit: int

    @property
    def largest(self) -> int:
        """The highest value."""
        return ((1 << self.bits) - 1) * self.unit


@cache
def field_bits(field: str) -> FieldBits:
    """The place of a field of `Descriptor`, found by encoding its values and trying which it has."""
    if field == "swizzle":
        words = [replace(Descriptor(0, 0, 0), swizzle=mode).encode() for mode in SWIZZLES]
        low = (words[1] & -words[1]).bit_length() - 1
        return FieldBits(low, max(words).bit_length() - low, 1)
    unit = 1 if field == "base_offset" else CHUNK_BYTES
    low = replace(Descriptor(0, 0, 0), **{field: unit}).encode().bit_length() - 1
    bits = 1
    while True:
        try:
            replace(Descriptor(0, 0, 0), **{field: unit << bits}).encode()
        except ValueError:
            return FieldBits(low, bits, unit)
        bits += 1


@dataclass(frozen=True)
class OperandInMemory:
    """An operand of `wgmma` in shared memory.

    Attributes:
        matrix: what it is called, such as ``A``.
        rows: its rows (of B, its columns) that are shown, a multiple of eight.
        k: its extent along K.
        bits: of an element.
        transposable: it may be MN-major.
    """

    matrix: str
    rows: int
    k: int
    bits: int
    transposable: bool

    @property
    def layouts(self) -> tuple[tuple[str, bool], ...]:
        """Names of the layouts, and whether they are MN-major."""
        return (("K-major", False), ("MN-major", True))[: 1 + self.transposable]

    @property
    def grid(self) -> tuple[int, int]:
        """Core matrices along the rows and along K."""
        return self.rows // CHUNKS, self.k * self.bits // (8 * CHUNK_BYTES)


@dataclass(frozen=True)
class CorePattern:
    """The core matrices of one layout: where each starts before the swizzle, and how its eight chunks follow.

    Attributes:
        step: bytes from one chunk of a core matrix to the next.
        terms: of each core matrix, by rows and along K: bytes, times the leading offset, times the stride offset.
    """

    step: int
    terms: tuple[tuple[tuple[int, int, int], ...], ...]


def core_pattern(operand: OperandInMemory, swizzle: int, transposed: bool) -> CorePattern:
    """`warptile.isa.wgmma.pattern` by core matrices.

    Raises:
        ValueError: the eight chunks of one do not follow each other evenly, so that this picture cannot say it.
    """
    found = pattern(operand.rows, operand.k, operand.bits, swizzle, transposed=transposed)
    steps = {
        int(step)
        for first in range(0, len(found.fixed), CHUNKS)
        for step in np.diff(found.fixed[first : first + CHUNKS], axis=0).ravel()
    }
    corners = np.stack([found.fixed, found.leadings, found.strides], -1)
    if len(steps) != 1 or any((corners[i::CHUNKS, :, 1:] != corners[::CHUNKS, :, 1:]).any() for i in range(CHUNKS)):
        raise ValueError(f"core matrices of {swizzle}-byte rows do not have evenly spaced chunks")
    terms = corners[::CHUNKS]
    terms = terms.swapaxes(0, 1) if transposed else terms
    return CorePattern(steps.pop(), tuple(tuple((int(a), int(b), int(c)) for a, b, c in row) for row in terms))


def core_addresses(operand: OperandInMemory, descriptor: Descriptor, transposed: bool) -> NDArray[np.int64]:
    """Addresses of all chunks: (core matrices along the rows, along K, 8)."""
    found = pattern(operand.rows, operand.k, operand.bits, descriptor.swizzle, transposed=transposed)
    start, leading, stride, base = (
        np.array([value], np.int64)
        for value in (descriptor.start, descriptor.leading, descriptor.stride, descriptor.base_offset)
    )
    addresses: NDArray[np.int64] = found.addresses(start, leading, stride, base)[0]
    cores = addresses.reshape(-1, CHUNKS, addresses.shape[1])
    return cores.transpose((2, 0, 1) if transposed else (0, 2, 1))


def descriptor_editor(
    name: str, title: str, operand: OperandInMemory, first: Descriptor, notes: tuple[Cell, ...] = ()
) -> Figure:
    """The editor of an operand's descriptor, which begins with ``first``, K-major."""
    patterns = joined(
        Markup('<li data-layout="{} {}" data-step="{}" data-terms="{}">').format(
            int(transposed),
            swizzle,
            found.step,
            " ".join(",".join(map(str, term)) for row in found.terms for term in row),
        )
        for _, transposed in operand.layouts
        for swizzle in SWIZZLES
        for found in (core_pattern(operand, swizzle, transposed),)
    )
    controls = joined(_control(field, label, first) for field, label, _ in FIELDS)
    layouts = joined(
        Markup('<option value="{}">{}</option>').format(int(transposed), label) for label, transposed in operand.layouts
    )
    picture = Markup(
        '<div class="wt-descriptor" data-wt="descriptor" data-chunk="{}" data-line="{}">\n'
        '<div class="wt-controls" hidden>{}<label><span>layout</span><select data-layout>{}</select></label>'
        '<label><span>64 bits</span><input type="text" data-word spellcheck="false" value="{}"></label></div>\n'
        '<p class="wt-problems" role="status"></p>\n'
        '<p>Descriptor: <code class="wt-word">{}</code></p>\n{}\n<div class="wt-state">{}<div>{}</div></div>\n'
        "<ul hidden>{}</ul></div>"
    ).format(
        CHUNK_BYTES, LINE_BYTES, controls, layouts, word_text(first.encode()), word_text(first.encode()), _bits(first),
        _cores(operand, first), _detail(operand, first), patterns,
    )  # fmt: skip
    said = (
        "The address of a core matrix is start + bytes + i x leading + j x stride, then swizzled; the table below has "
        "bytes, i and j. The swizzle XORs one to three bits of each chunk's address, from bit 4 on, with the number "
        "of its 128-byte line, counted from the base offset.",
        *notes,
    )
    return Figure(name, title, picture, _table(operand), said, "Core matrices of every layout, before the swizzle")


def word_text(word: int) -> str:
    """64 bits as hexadecimal digits."""
    return f"0x{word:0{WORD_BITS // 4}x}"


def _control(field: str, label: str, first: Descriptor) -> Markup:
    place, value = field_bits(field), getattr(first, field)
    if field == "swizzle":
        options = joined(
            Markup('<option value="{}"{}>{}</option>').format(
                mode, Markup(" selected" if mode == value else ""), f"{mode} bytes" if mode else "none"
            )
            for mode in sorted(SWIZZLES)
        )
        return Markup(
            '<label><span>{}</span><select data-field="{}" data-low="{}" data-codes="{}">{}</select></label>'
        ).format(label, field, place.low, " ".join(map(str, SWIZZLES)), options)
    return Markup(
        '<label><span>{}</span><input type="number" data-field="{}" data-low="{}" data-bits="{}" min="0" max="{}" '
        'step="{}" value="{}"></label>'
    ).format(label, field, place.low, place.bits, place.largest, place.unit, value)


def _bits(first: Descriptor) -> Markup:
    """The fields of the 64 bits, the highest first."""
    places = sorted(((field_bits(field), field, label) for field, label, _ in FIELDS), key=lambda each: -each[0].low)
    word = first.encode()
    heads, cells = [], []
    for number, (place, field, label) in enumerate(places):
        heads.append(Markup("<th>{}<br>bits {} to {}").format(label, place.low + place.bits - 1, place.low))
        value = word >> place.low & (1 << place.bits) - 1
        cells.append(Markup('<td class="wt-q{}" data-bits="{}">{}').format(number, field, f"{value:0{place.bits}b}"))
    return Markup(
        '<div class="wt-scroll" tabindex="0" role="group" aria-label="Bits of the descriptor"><table class="wt-fields">'
        "<thead><tr>{}</thead><tbody><tr>{}</tbody></table></div>"
    ).format(joined(heads), joined(cells))


def _cores(operand: OperandInMemory, first: Descriptor) -> Markup:
    """The core matrices, each with the address of its first chunk."""
    rows, across = operand.grid
    elements = CHUNK_BYTES * 8 // operand.bits
    addresses = core_addresses(operand, first, transposed=False)
    heads = joined(Markup("<th>{}–{}").format(elements * j, elements * j + elements - 1) for j in range(across))
    lines = joined(
        Markup("<tr><th>{}–{}{}\n").format(
            CHUNKS * i, CHUNKS * i + CHUNKS - 1,
            joined(
                Markup('<td class="wt-q{}{}">{}').format(
                    i % 8, Markup("" if i or j else " wt-on"), hex(int(addresses[i, j, 0]))
                )
                for j in range(across)
            ),
        )
        for i in range(rows)
    )  # fmt: skip
    label = f"First chunk of each core matrix of {operand.matrix}"
    return Markup(
        '<section class="wt-map"><p>{}</p><div class="wt-scroll" tabindex="0" role="group" aria-label="{}">'
        '<table class="wt-cells wt-cores"><thead><tr><th>row\\k{}</thead>\n<tbody>\n{}</tbody></table></div></section>'
    ).format(label, label, heads, lines)


def _detail(operand: OperandInMemory, first: Descriptor) -> Markup:
    """The eight chunks of the first core matrix."""
    chunks = [int(each) for each in core_addresses(operand, first, transposed=False)[0, 0]]
    groups = [address % LINE_BYTES // CHUNK_BYTES for address in chunks]
    rows = joined(
        Markup("<tr><th>{}<td>{}<td>{}–{}\n").format(number, hex(address), 4 * group, 4 * group + 3)
        for number, (address, group) in enumerate(zip(chunks, groups, strict=True))
    )
    return Markup(
        '<p>Its chunks: <span class="wt-wavefronts">{}</span></p><table class="wt-bits wt-chunks"><thead><tr><th>chunk'
        "<th>address<th>banks</thead>\n<tbody>\n{}</tbody></table>"
    ).format(wavefront_words(max(Counter(groups).values())), rows)


def _table(operand: OperandInMemory) -> DataTable:
    elements = CHUNK_BYTES * 8 // operand.bits
    rows = []
    for label, transposed in operand.layouts:
        for swizzle in SWIZZLES:
            found = core_pattern(operand, swizzle, transposed)
            for i, line in enumerate(found.terms):
                for j, (fixed, leadings, strides) in enumerate(line):
                    spans = (f"{CHUNKS * i}–{CHUNKS * i + CHUNKS - 1}", f"{elements * j}–{elements * j + elements - 1}")
                    numbers = map(str, (fixed, leadings, strides, found.step))
                    rows.append((label, f"{swizzle}" if swizzle else "none", *spans, *numbers))
    header = ("layout", "swizzle, bytes", "rows", "k", "bytes", "x leading", "x stride", "bytes from chunk to chunk")
    return DataTable(header, tuple(rows), left=4)
