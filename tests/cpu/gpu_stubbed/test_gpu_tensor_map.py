"""What reaches the driver for a tensor map; the driver is a recording stand-in."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import pytest

from warptile.errors import LayoutError
from warptile.gpu import driver, loader, tensor_map
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.launch.tensor_map import TENSOR_MAP_TYPES, TensorMap

MAP = TensorMap("B", "bf16", (100, 37), (208,), (64, 8), swizzle="128B", offset_bytes=32, l2_promotion="256B")


def test_fields_are_spelt_as_the_driver_spells_them() -> None:
    cuda = pytest.importorskip("cuda.bindings.driver")
    assert tensor_map.fields(MAP, {"B": 0x1000}) == {
        "dtype": "BFLOAT16", "address": 0x1020, "dims": (100, 37), "strides_bytes": (208,), "box": (64, 8),
        "element_strides": (1, 1), "swizzle": "128B", "l2_promotion": "L2_256B", "oob_fill": "NONE",
    }  # fmt: skip
    assert set(tensor_map.TYPE_NAMES) == set(TENSOR_MAP_TYPES)
    for name in tensor_map.TYPE_NAMES.values():
        assert hasattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
    nan = TensorMap("B", "f32", (8,), (), (8,), oob_fill="nan")
    assert hasattr(
        cuda.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{tensor_map.fields(nan, {'B': 0})['oob_fill']}"
    )


def test_an_address_that_is_not_aligned_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"tensor map of B: it starts at 0x1028, .* 16 bytes"):
        tensor_map.fields(MAP, {"B": 0x1008})


def test_a_tensor_that_starts_anywhere_is_mapped_from_the_16_bytes_of_its_first_element() -> None:
    anywhere = replace(MAP, any_start=True, offset_bytes=6)
    found = tensor_map.fields(anywhere, {"B": 0x1004})
    assert (found["address"], found["dims"], found["strides_bytes"]) == (0x1000, (105, 37), (208,))
    assert tensor_map.fields(anywhere, {"B": 0x100A})["dims"] == (100, 37)


def test_the_driver_gets_every_field_and_the_kernel_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = pytest.importorskip("cuda.bindings.driver")
    seen: list[tuple[Any, ...]] = []

    class Recording:
        """The driver's names, and an encoding that keeps what it was given."""

        def __getattr__(self, name: str) -> Any:
            return getattr(cuda, name)

        def cuTensorMapEncodeTiled(self, *given: Any) -> tuple[int, Any]:
            seen.append(given)
            made = cuda.CUtensorMap()
            made.opaque = [cuda.cuuint64_t(i + 1) for i in range(16)]
            return 0, made

    monkeypatch.setattr(driver, "_cuda", Recording)
    spec = LaunchSpec("k", (1, 1, 1), (32, 1, 1), (Scalar("s32", 5), MAP, Pointer("B", 8)))
    packed = loader.PackedArguments(spec, {"B": 0x1000})
    places = list((ctypes.c_void_p * 3).from_address(packed.address))
    assert places[1] is not None
    assert places[1] % 64 == 0
    assert ctypes.string_at(places[1], 128) == b"".join((i + 1).to_bytes(8, "little") for i in range(16))
    assert ctypes.string_at(places[0], 4) == (5).to_bytes(4, "little")
    assert ctypes.string_at(places[2], 8) == (0x1008).to_bytes(8, "little")
    dtype, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill = seen[0]
    assert (dtype.name, rank, address) == ("CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", 2, 0x1020)
    assert [[int(each) for each in field] for field in (dims, strides, box, steps)] == [
        [100, 37],
        [208],
        [64, 8],
        [1, 1],
    ]
    assert (interleave.value, swizzle.value, promotion.value, fill.value) == (0, 3, 3, 0)
