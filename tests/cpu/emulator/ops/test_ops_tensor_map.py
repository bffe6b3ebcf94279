"""Kernels that make their own tensor maps: tensormap.replace, tensormap.cp_fenceproxy and the fence behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_bulk_copies import LOAD_2D, SCHEDULES, box_of, load, matrix, out, run

from warptile.emulator.async_ops.tensor_boxes import decode, encode, replaced
from warptile.errors import (
    DataRace,
    DivergentCollective,
    EmulationError,
    IllegalInstruction,
    LayoutError,
    UnknownInstruction,
    UnsupportedError,
)
from warptile.launch.tensor_map import TensorMap

MADE = 4096  # byte of the tile where the map is made
ZEROS = f"st.shared.u32 [%r21+{MADE}], 0;\nbar.sync 0;\n"  # 64 threads: 256 bytes
COPY = (
    "setp.ge.u32 %p4, %r1, 32;\nadd.s64 %rd7, %rd2, 1024;\n@%p4 bra copied;\n"
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
    f"[%rd7], [%r3+{MADE}], 128;\n"
    "fence.proxy.tensormap::generic.acquire.gpu [%rd7], 128;\ncopied:\nbar.sync 0;\n"
)
USE = load(1024, f"{LOAD_2D} [%r3], [%rd7, {{8, 3}}], [%r2]") + out(1024)


def replace(field: str, *operands: object, where: str = f"%r3+{MADE}", space: str = ".shared::cta") -> str:
    width = "b64" if field in ("global_address", "global_stride") else "b32"
    return f"@!%p1 tensormap.replace.tile.{field}{space}.b1024.{width} [{where}], {', '.join(map(str, operands))};\n"


def fields(address: str, **others: object) -> dict[tuple[Any, ...], object]:
    """Every field of the map that `matrix` has, by its name and dimension."""
    found: dict[tuple[Any, ...], object] = {
        ("global_address",): address, ("rank",): 1, ("box_dim", 0): 64, ("box_dim", 1): 8, ("global_dim", 0): 100,
        ("global_dim", 1): 40, ("global_stride", 0): 208, ("element_stride", 0): 1, ("element_stride", 1): 1,
        ("elemtype",): 1, ("interleave_layout",): 0, ("swizzle_mode",): 3, ("fill_mode",): 0,
    }  # fmt: skip
    return found | {(name,): value for name, value in others.items()}


def made(given: dict[tuple[Any, ...], object]) -> str:
    return ZEROS + "".join(replace(*key, value) for key, value in given.items())


def buffers() -> tuple[TensorMap, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    values, tensor = matrix()
    return tensor, values, np.zeros(640, dtype=np.uint16)


# The address of A's tensor: the map in the parameter is the emulator's own format, whose first word it is.
ADDRESS = "ld.param.u64 %rd9, [map];\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_map_made_of_nothing(schedule: str) -> None:
    tensor, values, b = buffers()
    run(ADDRESS + made(fields("%rd9")) + COPY + USE, tensor, values, b, schedule=schedule)
    np.testing.assert_array_equal(b[:512], box_of(values, 8, 3, 100))


def test_a_map_changed_in_place() -> None:
    """As grouped products do: the launch's map copied, its tensor moved 16 rows on and cut to 20 rows of 72."""
    tensor, values, b = buffers()
    body = "@%p1 bra stored;\n"
    for word in range(0, 128, 8):
        body += f"ld.param.u64 %rd8, [map+{word}];\nst.global.u64 [%rd2+{1024 + word}], %rd8;\n"
    body += ADDRESS + f"add.s64 %rd9, %rd9, {16 * 208};\nadd.s64 %rd7, %rd2, 1024;\n"
    for key, value in {("global_address",): "%rd9", ("global_dim", 0): 72, ("global_dim", 1): 20}.items():
        body += replace(*key, value, where="%rd7", space=".global")
    body += "fence.proxy.tensormap::generic.acquire.gpu [%rd7], 128;\nstored:\nbar.sync 0;\n"
    body += load(1024, f"{LOAD_2D} [%r3], [%rd7, {{64, 16}}], [%r2]") + out(1024)
    run(body, tensor, values, b)
    np.testing.assert_array_equal(b[:512], box_of(values[16:36], 64, 16, 72))


def test_a_map_needs_its_fence_after_each_change() -> None:
    tensor, values, b = buffers()
    whole = ADDRESS + made(fields("%rd9")) + COPY + USE
    fence = "fence.proxy.tensormap::generic.acquire.gpu [%rd7], 128;\n"
    message = "uses a tensor map that this kernel wrote, and no fence.proxy.tensormap::generic.acquire"
    with pytest.raises(DataRace, match=message):
        run(whole.replace(fence, ""), tensor, values, b)
    with pytest.raises(DataRace, match=message):
        run(whole.replace(fence, "fence.proxy.tensormap::generic.release.gpu;\n"), tensor, values, b)
    late = replace("global_dim", 0, 64, where="%rd7", space=".global") + "bar.sync 0;\n"
    with pytest.raises(DataRace, match=message):
        run(whole.replace(USE, late + USE), tensor, values, b)
    run(whole.replace(USE, late + fence + USE), tensor, values, b)
    np.testing.assert_array_equal(b[:512], box_of(values, 8, 3, 64))


UNSET_IS_NONE = [("fill_mode",), ("interleave_layout",)]


def test_fill_and_interleave_are_none_unless_set() -> None:
    """As Triton makes its maps: of zeros, which these two fields may stay."""
    tensor, values, b = buffers()
    given = {key: value for key, value in fields("%rd9").items() if key not in UNSET_IS_NONE}
    run(ADDRESS + made(given) + COPY + USE, tensor, values, b)
    np.testing.assert_array_equal(b[:512], box_of(values, 8, 3, 100))


@pytest.mark.parametrize(
    "left_out", [key for key in fields("") if key not in (("global_address",), *UNSET_IS_NONE)], ids=str
)
def test_a_field_that_nobody_set_is_named(left_out: tuple[Any, ...]) -> None:
    given = fields("%rd9")
    del given[left_out]
    name = " ".join(map(str, left_out))
    with pytest.raises(IllegalInstruction, match=rf"tensormap.replace has not set {name} \[in"):
        run(ADDRESS + made(given) + COPY + USE, *buffers())


@pytest.mark.parametrize(
    ("body", "error", "needed"),
    [
        (made(fields("%rd9", rank=5)), IllegalInstruction, "rank of 5; it takes 0 to 4"),
        (made(fields("%rd9", elemtype=8)), UnsupportedError, "subnormals flushed"),
        (made(fields("%rd9", elemtype=12)), IllegalInstruction, "elemtype of 12; it takes 0 to 11"),
        (made(fields("%rd9", interleave_layout=1)), UnsupportedError, "the emulator knows 0, none"),
        (made(fields("%rd9", swizzle_mode=4)), IllegalInstruction, "swizzle_mode of 4; it takes 0 to 3"),
        (made(fields("%rd9") | {("box_dim", 1): 0}), IllegalInstruction, "box_dim of 0; it takes 1 to 256"),
        (made(fields("%rd9") | {("global_stride", 4): 16}), IllegalInstruction, "global_stride 4: there are 0 to 3"),
        (made(fields("%rd9") | {("global_stride", 0): 200}) + COPY + USE, IllegalInstruction, "multiples of 16"),
        (made(fields("%rd9") | {("box_dim", 0): 128}) + COPY + USE, IllegalInstruction, "at most 128 bytes innermost"),
        ("add.s64 %rd9, %rd9, 8;\n" + made(fields("%rd9")) + COPY + USE, IllegalInstruction, "no multiple of 16"),
        (made(fields("%rd9", rank=2)) + COPY + USE, IllegalInstruction, "has not set global_dim 2, global_stride 1"),
        (made(fields("%rd9")) + "cvta.shared.u64 %rd7, %rd5;\n".replace("%rd5", "tile") + "add.s64 %rd7, %rd7, 4096;\n"
         + USE, IllegalInstruction, "lies in shared memory; it takes one in a parameter or in global memory"),
        (ZEROS.replace(", 0", ", %r1") + replace("rank", 1), IllegalInstruction, "no tensor map, nor 128 zero bytes"),
        (ZEROS + replace("swizzle_atomicity", 0), UnknownInstruction, "needs one of"),
        (ZEROS + replace("box_dim", 8), UnknownInstruction, "box_dim takes a dimension and a value"),
        (ZEROS + replace("box_dim", "%r1", 8), UnknownInstruction, "must be a constant"),
        (made(fields("%rd9")) + COPY.replace("128;\nfence", "64;\nfence"), UnknownInstruction, "size must be 128"),
        (made(fields("%rd9")) + COPY.replace(f"[%r3+{MADE}]", f"[%r21+{MADE}]"), DivergentCollective, "different addr"),
        ("fence.proxy.tensormap::generic.acquire.gpu;\n", UnknownInstruction, "takes .release, or .acquire"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd2], 64;\n", UnknownInstruction, "size must be 128"),
    ],
)  # fmt: skip
def test_wrong_maps_are_told(body: str, error: type[EmulationError], needed: str) -> None:
    with pytest.raises(error, match=needed):
        run(ADDRESS + body, *buffers())


def test_replacing_all_fields_of_a_map_makes_another() -> None:
    """Without a kernel: any map turns into any other, whatever its rank."""
    first = TensorMap("A", "f32", (100, 30, 7), (416, 12480), (32, 8, 2), (1, 2, 1), "128B", oob_fill="nan")
    other = TensorMap("A", "bf16", (96,), (), (64,))
    numbers = {"bf16": 10, "f32": 7}
    for start, end in ((first, other), (other, first)):
        raw = replaced(encode(start, 4096), "global_address", 0, 8192)
        for name, values in (("global_dim", end.dims), ("global_stride", end.strides_bytes), ("box_dim", end.box),
                             ("element_stride", end.element_strides)):  # fmt: skip
            for ordinal, value in enumerate(values):
                raw = replaced(raw, name, ordinal, value)
        whole = {"rank": len(end.dims) - 1, "elemtype": numbers[end.dtype], "interleave_layout": 0}
        whole |= {"swizzle_mode": 3 * (end.swizzle == "128B"), "fill_mode": int(end.oob_fill == "nan")}
        for name, value in whole.items():
            raw = replaced(raw, name, 0, value)
        assert decode(raw, "A") == (end, 8192)
    with pytest.raises(LayoutError, match="no multiple of 16"):
        decode(replaced(raw, "global_address", 0, 8), "A")
