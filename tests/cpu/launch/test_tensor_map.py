"""Tensor maps: their limits, and where a copy puts every byte, held against a model that goes element by element."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from warptile.emulator.async_ops.tensor_boxes import box_bytes, chunks, decode, encode, extents, filled, slots
from warptile.errors import DTypeError, LayoutError, UnsupportedError
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.launch.tensor_map import TensorMap

GOOD: dict[str, Any] = {
    "operand": "A", "dtype": "bf16", "dims": (100, 37), "strides_bytes": (208,), "box": (64, 8), "swizzle": "128B",
}  # fmt: skip


def test_a_map_in_a_launch_names_its_operand() -> None:
    spec = LaunchSpec("k", (1, 1, 1), (32, 1, 1), (TensorMap(**GOOD), Scalar("s32", 1), Pointer("D"), Pointer("A")))
    assert spec.operands == ("A", "D")
    assert TensorMap(**GOOD).element_strides == (1, 1)


@pytest.mark.parametrize(
    ("field", "value", "needed"),
    [
        ("dims", (), "one to five"),
        ("dims", (8,) * 6, "one to five"),
        ("dims", (0, 37), "1 to 2\\^32"),
        ("dims", ((1 << 32) + 1, 37), "1 to 2\\^32"),
        ("strides_bytes", (), "1: one for every"),
        ("strides_bytes", (200,), "multiples of 16"),
        ("strides_bytes", (1 << 40,), "below 2\\^40"),
        ("strides_bytes", (-16,), "multiples of 16"),
        ("box", (64,), "2 extents"),
        ("box", (64, 257), "1 to 256"),
        ("box", (64, 0), "1 to 256"),
        ("box", (60, 8), "multiple of 16 bytes; it has 120"),
        ("box", (72, 8), "at most 128 bytes innermost under swizzle 128B; it has 144"),
        ("element_strides", (1,), "2 strides"),
        ("element_strides", (1, 9), "1 to 8"),
        ("element_strides", (1, 0), "1 to 8"),
        ("swizzle", "16B", "one of none, 32B"),
        ("oob_fill", "one", "'zero' or 'nan'"),
        ("offset_bytes", 8, "multiple of 16"),
        ("offset_bytes", -16, "multiple of 16"),
        ("l2_promotion", "512B", "none, 64B"),
    ],
)
def test_a_field_outside_the_limits_is_named(field: str, value: object, needed: str) -> None:
    with pytest.raises(LayoutError, match=f"tensor map of A: {field} is .*; it takes .*{needed}"):
        TensorMap(**{**GOOD, field: value})


def test_a_map_with_a_smaller_box_is_the_one_that_is_made_so() -> None:
    whole = TensorMap(**GOOD)
    for box in ((64, 8), (64, 1), (8, 8), (48, 3)):
        smaller = whole.with_smaller_box(box)
        assert smaller == TensorMap(**{**GOOD, "box": box})
        assert hash(smaller) == hash(TensorMap(**{**GOOD, "box": box}))
    assert whole == TensorMap(**GOOD)
    for box in ((64, 9), (72, 8), (60, 8), (64, 0), (64,), (64, 8, 1)):
        with pytest.raises(LayoutError, match=r"box is .*; it takes extents of 1 to .*64, 8.*multiple of 16 bytes"):
            whole.with_smaller_box(box)


def test_a_tensor_that_may_start_anywhere_starts_at_an_element() -> None:
    assert TensorMap(**{**GOOD, "any_start": True, "offset_bytes": 6}).offset_bytes == 6
    with pytest.raises(LayoutError, match="offset_bytes is 5; it takes a multiple of 2"):
        TensorMap(**{**GOOD, "any_start": True, "offset_bytes": 5})


def test_limits_of_the_type() -> None:
    with pytest.raises(DTypeError, match="'e4m3'; it takes u8"):
        TensorMap(**{**GOOD, "dtype": "e4m3"})
    with pytest.raises(LayoutError, match="oob_fill is 'nan'; it takes 'zero' for u16"):
        TensorMap(**{**GOOD, "dtype": "u16", "oob_fill": "nan"})
    with pytest.raises(UnsupportedError, match="interleave '16B'"):
        TensorMap(**{**GOOD, "interleave": "16B"})
    assert TensorMap(**{**GOOD, "dims": (1 << 32, 37), "strides_bytes": ((1 << 40) - 16,)}).dims[0] == 1 << 32


def element_by_element(
    tensor: TensorMap, memory: np.ndarray[Any, Any], corner: tuple[int, ...], start: int
) -> dict[int, tuple[int, int]]:
    """Shared address -> (place in the tensor or -1, byte): the definition, one byte after the other.

    Element (i0, i1, ...) of the box is element (c0 + i0, c1 + s1 i1, ...) of the tensor, lies at its running number in
    shared memory, and address bits 4.. are exclusive-ored with bits 7.. under a swizzle.
    """
    size = tensor.element_bytes
    bits = {"none": 0, "32B": 1, "64B": 2, "128B": 3}[tensor.swizzle]
    counts = [tensor.box[0]]
    for extent, step in zip(tensor.box[1:], tensor.element_strides[1:], strict=True):
        counts.append((extent + step - 1) // step)
    found = {}
    for number, backwards in enumerate(product(*(range(count) for count in reversed(counts)))):
        at = [corner[0] + backwards[-1]]
        at += [c + s * i for c, s, i in zip(corner[1:], tensor.element_strides[1:], backwards[-2::-1], strict=True)]
        inside = all(0 <= a < d for a, d in zip(at, tensor.dims, strict=True))
        place = at[0] * size + sum(a * s for a, s in zip(at[1:], tensor.strides_bytes, strict=True))
        for byte in range(size):
            address = start + number * size + byte
            if bits:  # rows as far apart as the swizzle is wide
                address = start + number // counts[0] * (16 << bits) + number % counts[0] * size + byte
            address ^= ((address >> 7) & ((1 << bits) - 1)) << 4
            found[address] = (place + byte, int(memory[place + byte])) if inside else (-1, byte)
    return found


def random_map(random: np.random.Generator) -> TensorMap:
    """A map of any rank, type and swizzle whose tensor is small."""
    dtype = str(random.choice(["u8", "u16", "bf16", "f32", "s32", "f64"]))
    size = {"u8": 1, "u16": 2, "bf16": 2, "f32": 4, "s32": 4, "f64": 8}[dtype]
    swizzle = str(random.choice(["none", "32B", "64B", "128B"]))
    chunks_wide = {"none": 6, "32B": 2, "64B": 4, "128B": 8}[swizzle]
    inner = 16 * (chunks_wide if random.integers(2) and swizzle != "none" else int(random.integers(1, chunks_wide)))
    inner //= size
    if inner > 256:
        inner = 256 // size
    rank = int(random.integers(1, 6))
    dims = (int(random.integers(1, 160)), *(int(random.integers(1, 6)) for _ in range(rank - 1)))
    strides: list[int] = []
    below = dims[0] * size
    for extent in dims[1:]:
        strides.append(-(-below // 16) * 16 + 16 * int(random.integers(0, 3)))
        below = strides[-1] * extent
    return TensorMap(
        "A", dtype, dims, tuple(strides),
        box=(inner, *(int(random.integers(1, 7)) for _ in range(rank - 1))),
        element_strides=(int(random.integers(1, 9)), *(int(random.integers(1, 4)) for _ in range(rank - 1))),
        swizzle=swizzle, oob_fill="nan" if dtype[0] in "fb" and random.integers(2) else "zero",
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_every_byte_goes_where_the_definition_puts_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    tensor = random_map(random)
    size = tensor.element_bytes
    reach = tensor.dims[0] * size + sum((d - 1) * s for d, s in zip(tensor.dims[1:], tensor.strides_bytes, strict=True))
    memory = random.integers(0, 255, reach + 16, dtype=np.uint8)  # never the fill's bytes by chance alone
    step = 16 // size
    corners = [
        (step * int(random.integers(-3, 160 // step)), *(int(random.integers(-3, 8)) for _ in tensor.dims[1:]))
        for _ in range(3)
    ]
    starts = [128 * int(random.integers(0, 20)) for _ in corners]
    found = chunks(tensor, np.array(corners))
    places = slots(tensor, np.array(starts))
    assert found.places.shape == found.inside.shape == places.shape == (3, box_bytes(tensor) // 16)
    safe = np.where(found.inside[..., None] > 0, found.places[..., None] + np.arange(16), 0)
    moved = filled(tensor, memory[np.minimum(safe, reach + 15)], found.inside)
    pattern = 0x7FF7 if tensor.oob_fill == "nan" else 0
    for row, (corner, start) in enumerate(zip(corners, starts, strict=True)):
        wanted = {
            address: byte if place >= 0 else pattern >> 8 * (byte % 2) & 0xFF
            for address, (place, byte) in element_by_element(tensor, memory, corner, start).items()
        }
        got = {
            int(places[row, i]) + b: int(moved[row, i, b]) for i in range(places.shape[1]) for b in range(16)
        }  # fmt: skip
        assert got == wanted


def test_extents_count_what_is_taken() -> None:
    tensor = TensorMap("A", "u8", (64, 9, 9), (64, 640), box=(32, 8, 7), element_strides=(4, 2, 3))
    assert extents(tensor) == (32, 4, 3)
    assert box_bytes(tensor) == 32 * 4 * 3


def test_a_map_comes_back_from_its_bytes() -> None:
    random = np.random.default_rng(5)
    for _ in range(50):
        tensor = random_map(random)
        raw = encode(tensor, 0x7F00_0000_1230)
        assert len(raw) == 128
        assert decode(raw, "A") == (tensor, 0x7F00_0000_1230)
    assert decode(bytes(128), "A") is None


def test_loads_of_tf32_round() -> None:
    """To the nearest, ties to even; too large is infinite, subnormal numbers are numbers, NaN is always the same."""
    tensor = TensorMap("A", "tf32", (64,), (), (4,), oob_fill="nan")
    given = [0x3F800FFF, 0x3F801000, 0x3F803000, 0xBF801001, 0x7F7FFFFF, 0x80000001, 0x007FF000, 0x7F800001]
    wanted = [0x3F800000, 0x3F800000, 0x3F804000, 0xBF802000, 0x7F800000, 0x80000000, 0x00800000, 0x7FFFE000]
    words = np.array(given, np.uint32).view(np.uint8).reshape(2, 16)
    found = filled(tensor, words, np.array([16, 16])).reshape(-1).view(np.uint32)
    assert [hex(each) for each in found.tolist()] == [hex(each) for each in wanted]
    outside = filled(tensor, words[:1], np.array([8])).reshape(-1).view(np.uint32).tolist()
    assert outside == [*wanted[:2], 0x7FF77FF7, 0x7FF77FF7]
