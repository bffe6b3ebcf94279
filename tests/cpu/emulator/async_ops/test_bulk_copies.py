"""Bulk and tensor copies: what arrives, when, and which errors are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warptile.emulator import EmulationReport, emulate
from warptile.errors import (
    DataRace,
    Deadlock,
    EmulationError,
    IllegalAddress,
    IllegalInstruction,
    MisalignedAccess,
    UnknownInstruction,
)
from warptile.isa.swizzle import swizzled
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.launch.tensor_map import TensorMap
from warptile.ptx import parse

SCHEDULES = ("latest", "earliest", "random:3", "random:4")
THREADS = 64

HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 given)
{
    .reg .pred %p<9>;
    .reg .b16 %h<9>;
    .reg .b32 %r<29>;
    .reg .b64 %rd<19>;
    .shared .align 1024 .b8 tile[8192];
    .shared .align 8 .b64 full;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, full;
    mov.u32 %r3, tile;
    mov.b64 %rd1, map;
    ld.param.u64 %rd2, [given];
    cvta.to.global.u64 %rd2, %rd2;
    shl.b32 %r20, %r1, 2;
    cvt.u64.u32 %rd3, %r20;
    add.s64 %rd4, %rd2, %rd3;
    add.s32 %r21, %r3, %r20;
    setp.ne.u32 %p1, %r1, 0;
"""
TAIL = """
    ret;
}
"""
INIT = """
    @%p1 bra ready;
    mbarrier.init.shared::cta.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
ready:
    bar.sync 0;
"""
WAIT = """
again:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
    @!%p2 bra again;
"""
LOAD_2D = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE_2D = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
STORE_1D = "cp.async.bulk.global.shared::cta.bulk_group"
LOAD_1D = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
FENCE = "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
COMMIT = "@!%p1 cp.async.bulk.commit_group;\n"


def out(count: int) -> str:
    """Each thread copies words of the tile to the buffer, ``count`` bytes in all."""
    lines = []
    for start in range(0, count, 4 * THREADS):
        left = (count - start) // 4
        if left < THREADS:
            lines.append(f"setp.ge.u32 %p3, %r1, {left};\n@%p3 ret;")
        lines.append(f"ld.shared.u32 %r22, [%r21+{start}];\nst.global.u32 [%rd4+{start}], %r22;")
    return "\n".join(lines)


def into(count: int) -> str:
    """Each thread copies words of the buffer to the tile."""
    return "\n".join(
        f"ld.global.u32 %r22, [%rd4+{start}];\nst.shared.u32 [%r21+{start}], %r22;"
        for start in range(0, count, 4 * THREADS)
    )


def load(size: int, what: str) -> str:
    """Thread 0 expects ``size`` bytes and starts a copy."""
    return (
        INIT + f"@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {size};\n@!%p1 {what};\n" + WAIT
    )  # fmt: skip


def run(
    body: str, tensor: TensorMap | None, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], *, schedule: str = "latest",
    writes: str = "B", grid: int = 1, cluster: int = 1,
) -> EmulationReport:  # fmt: skip
    """One launch: operand A under the map, B as a buffer."""
    module = parse(HEAD + body + TAIL)
    spec = LaunchSpec(
        "k", (grid, 1, 1), (THREADS, 1, 1), (tensor or TensorMap("A", "u8", (16,), (), (16,)), Pointer("B")),
        cluster=(cluster, 1, 1),
    )  # fmt: skip
    return emulate(
        module, spec, {"A": a, "B": b}, accesses={name: Access(writes=True) for name in writes}, arch="sm_90a",
        schedule=schedule,
    )  # fmt: skip


def matrix(rows: int = 40, columns: int = 100, stride: int = 104) -> tuple[np.ndarray[Any, Any], TensorMap]:
    """A matrix of 16-bit numbers in longer rows, and a map of boxes of 8 rows of 128 bytes."""
    values = np.arange(1, rows * stride + 1, dtype=np.uint16).reshape(rows, stride)
    return values, TensorMap("A", "u16", (columns, rows), (2 * stride,), (64, 8), swizzle="128B")


def box_of(values: np.ndarray[Any, Any], x: int, y: int, columns: int) -> np.ndarray[Any, Any]:
    """The box of 8 x 64 at a corner, zeros outside, with its 16-byte chunks where the swizzle puts them."""
    plain = np.zeros((8, 64), dtype=np.uint16)
    for i in range(8):
        for j in range(64):
            if 0 <= y + i < len(values) and 0 <= x + j < columns:
                plain[i, j] = values[y + i, x + j]
    raw, moved = plain.view(np.uint8).reshape(-1), np.empty(1024, dtype=np.uint8)
    for byte in range(1024):
        moved[swizzled(byte, 128)] = raw[byte]
    return moved.view(np.uint16)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("x", "y"), [(0, 0), (64, 36), (-8, -3), (8, 11), (128, 0)])
def test_a_tile_is_loaded(schedule: str, x: int, y: int) -> None:
    values, tensor = matrix()
    got = np.zeros(512, dtype=np.uint16)
    run(load(1024, f"{LOAD_2D} [%r3], [%rd1, {{{x}, {y}}}], [%r2]") + out(1024), tensor, values, got, schedule=schedule)
    np.testing.assert_array_equal(got, box_of(values, x, y, 100))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("x", "y"), [(0, 0), (64, 36), (8, 11), (128, 0)])
def test_a_tile_is_stored_in_whole_chunks(schedule: str, x: int, y: int) -> None:
    values, tensor = matrix()
    given = np.arange(30000, 30512, dtype=np.uint16)
    wanted = values.copy()
    tile = box_of(given.reshape(8, 64), 0, 0, 64).reshape(8, 64)  # the permutation is its own inverse
    for i in range(8):
        for j in range(64):
            if y + i < 40 and x + j < 104 and x + j - j % 8 < 100:
                wanted[y + i, x + j] = tile[i, j]
    body = into(1024) + FENCE + f"@!%p1 {STORE_2D} [%rd1, {{{x}, {y}}}], [%r3];\n" + COMMIT
    run(body + "cp.async.bulk.wait_group.read 0;", tensor, values, given, writes="AB", schedule=schedule)
    np.testing.assert_array_equal(values, wanted)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_plain_bytes_there_and_back(schedule: str) -> None:
    a, b = np.arange(1024, dtype=np.uint8), np.zeros(1024, dtype=np.uint8)
    body = load(512, f"{LOAD_1D} [%r3+256], [%rd2+16], 512, [%r2]")
    body += f"@!%p1 {STORE_1D} [%rd2+512], [%r3+256], 512;\n" + COMMIT + "cp.async.bulk.wait_group 0;"
    b[:528] = np.arange(528, dtype=np.uint16).astype(np.uint8)
    first = b[16:528].copy()
    run(body, None, a, b, schedule=schedule)
    np.testing.assert_array_equal(b[512:], first)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("name", "dtype", "number"),
    [("add", "f32", np.float32), ("add", "bf16", None), ("add", "u32", np.uint32), ("min", "s64", np.int64),
     ("max", "f16", np.float16), ("xor", "b32", np.uint32), ("add.noftz", "f16", np.float16)],
)  # fmt: skip
def test_plain_reductions(schedule: str, name: str, dtype: str, number: Any) -> None:
    random = np.random.default_rng(1)
    raw = random.integers(0, 120, 512).astype(np.uint8) if number is None else None
    both = random.integers(-99, 99, 1024 // np.dtype(number).itemsize) if number is not None else np.zeros(0)
    b = raw.repeat(2)[:1024].copy() if raw is not None else both.astype(number).view(np.uint8)
    old, value = b[512:].copy(), b[:512].copy()
    instruction = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{name}.{dtype}"
    body = into(512) + FENCE + f"@!%p1 {instruction} [%rd2+512], [%r3], 512;\n" + COMMIT
    run(body + "cp.async.bulk.wait_group 0;", None, np.zeros(16, np.uint8), b, schedule=schedule)
    if number is None:  # sums of bf16, by their definition: exact in float32, then rounded to nearest even
        wide = sum((x.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for x in (old, value))
        bits = np.asarray(wide, np.float32).view(np.uint32)
        wanted = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(np.uint8)
    else:
        combine = {"add": np.add, "min": np.minimum, "max": np.maximum, "xor": np.bitwise_xor}[name.partition(".")[0]]
        wanted = combine(old.view(number), value.view(number)).view(np.uint8)
    np.testing.assert_array_equal(b[512:], wanted)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_add_up_tiles(schedule: str) -> None:
    a = np.ones((8, 8), dtype=np.float32)
    tensor = TensorMap("A", "f32", (8, 8), (32,), (8, 8))
    b = np.arange(64, dtype=np.float32)
    add = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
    body = into(256) + FENCE + f"@!%p1 {add} [%rd1, {{0, 4}}], [%r3];\n" + COMMIT + "cp.async.bulk.wait_group.read 0;"
    run(body, tensor, a, b, writes="AB", grid=3, schedule=schedule)
    assert (a[:4] == 1).all()
    np.testing.assert_array_equal(a[4:], 1 + 3 * b.reshape(8, 8)[:4])


def test_a_reduction_takes_what_the_table_says() -> None:
    line = "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%rd2], [%r3], 16;"
    with pytest.raises(UnknownInstruction, match=r"cannot min .f32; it takes u32"):
        run(line, None, np.zeros(16, np.uint8), np.zeros(16, np.uint8))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_multicast_brings_a_tile_to_each_block_of_the_mask(schedule: str) -> None:
    values, tensor = matrix()
    got = np.zeros((2, 512), dtype=np.uint16)
    body = """
    mov.u32 %r5, %cluster_ctarank;
    mul.wide.u32 %rd5, %r5, 1024;
    add.s64 %rd4, %rd4, %rd5;
    setp.ne.u32 %p4, %r5, 0;
    or.pred %p4, %p4, %p1;
    mov.u16 %h1, 3;
    """ + INIT + """
    @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 1024;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    """  # fmt: skip
    body += f"@!%p4 {LOAD_2D}.multicast::cluster [%r3], [%rd1, {{8, 3}}], [%r2], %h1;\n" + WAIT
    body += "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n" + out(1024)
    run(body, tensor, values, got, grid=2, cluster=2, schedule=schedule)
    for each in got:
        np.testing.assert_array_equal(each, box_of(values, 8, 3, 100))


@pytest.mark.parametrize(
    ("instruction", "error", "needed"),
    [
        (f"{LOAD_2D} [%r3], [%rd1, {{4, 0}}], [%r2]", IllegalInstruction, "innermost coordinate 4 is 8 bytes into"),
        (f"{STORE_2D} [%rd1, {{4, 0}}], [%r3]", IllegalInstruction, "innermost coordinate 4 is 8 bytes into"),
        (f"{STORE_2D} [%rd1, {{0, -1}}], [%r3]", IllegalInstruction, "none may be negative"),
        (f"{STORE_2D} [%rd1, {{-8, 0}}], [%r3]", IllegalInstruction, "none may be negative"),
        (f"{LOAD_2D} [%r3], [%rd2, {{0, 0}}], [%r2]", IllegalInstruction, "there is no tensor map at its address"),
        (f"{LOAD_2D} [%r3+64], [%rd1, {{0, 0}}], [%r2]", MisalignedAccess, "it takes multiples of 128"),
        (f"{LOAD_2D} [%r3+7680], [%rd1, {{0, 0}}], [%r2]", IllegalAddress, "of shared memory"),
        (f"{LOAD_2D} [%r3], [%rd1+32, {{0, 0}}], [%r2]", MisalignedAccess, "no multiple of 64"),
        (f"{LOAD_2D.replace('2d', '1d')} [%r3], [%rd1, {{0}}], [%r2]", IllegalInstruction, "has 2 dimensions"),
        (f"{LOAD_2D} [%r3], [%rd1, {{0}}], [%r2]", UnknownInstruction, "takes 2 coordinates and got 1"),
        (f"{LOAD_2D.replace('tile', 'im2col')} [%r3], [%rd1, {{0, 0}}], [%r2]", UnknownInstruction, "im2col"),
        (f"{LOAD_1D} [%r3], [%rd2], 24, [%r2]", IllegalInstruction, "copies 24 bytes, which is no multiple of 16"),
        (f"{LOAD_1D} [%r3], [%rd2+8], 16, [%r2]", MisalignedAccess, "not a multiple of 16"),
        (f"{LOAD_1D} [%r3], [%rd2], 2048, [%r2]", IllegalAddress, "B has 1024 bytes"),
        (f"{STORE_1D} [%rd1], [%r3], 16", IllegalAddress, "read-only"),
    ],
)
def test_illegal_copies_are_told(instruction: str, error: type[EmulationError], needed: str) -> None:
    values, tensor = matrix()
    body = INIT + into(1024) + f"@!%p1 {instruction};\n"
    with pytest.raises(error, match=needed) as caught:
        run(body, tensor, values, np.zeros(512, np.uint16), writes="AB")
    assert caught.value.location is not None
    assert caught.value.location.ptx_line > 20


def test_too_few_bytes_expected_never_complete() -> None:
    values, tensor = matrix()
    body = load(1040, f"{LOAD_2D} [%r3], [%rd1, {{0, 0}}], [%r2]") + out(1024)
    with pytest.raises(Deadlock, match="16 bytes"):
        run(body, tensor, values, np.zeros(512, np.uint16))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_reading_before_the_bytes_have_been_waited_for_is_told(schedule: str) -> None:
    values, tensor = matrix()
    body = load(1024, f"{LOAD_2D} [%r3], [%rd1, {{0, 0}}], [%r2]").replace(WAIT, "bar.sync 0;\n") + out(1024)
    with pytest.raises(EmulationError, match=r"asynchronous copy into it has not been waited for|race"):
        run(body, tensor, values, np.zeros(512, np.uint16), schedule=schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_overwriting_the_source_of_a_store_is_told(schedule: str) -> None:
    values, tensor = matrix()
    body = into(1024) + FENCE + f"@!%p1 {STORE_2D} [%rd1, {{0, 0}}], [%r3];\n" + COMMIT + "bar.sync 0;\n" + into(1024)
    with pytest.raises(DataRace, match="nobody has waited for the copy"):
        run(body, tensor, values, np.zeros(512, np.uint16), writes="AB", schedule=schedule)
    right = body.replace("bar.sync 0;\nld", "cp.async.bulk.wait_group.read 0;\nbar.sync 0;\nld")
    run(right, tensor, values, np.zeros(512, np.uint16), writes="AB", schedule=schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ending", ["", COMMIT, "cp.async.bulk.wait_group 0;", COMMIT + "cp.async.bulk.wait_group 1;"])
def test_ending_before_a_store_has_read_shared_memory_is_told(schedule: str, ending: str) -> None:
    values, tensor = matrix()
    body = into(1024) + FENCE + f"@!%p1 {STORE_2D} [%rd1, {{0, 0}}], [%r3];\n" + ending
    with pytest.raises(IllegalAddress, match="ends before this copy has read shared memory"):
        run(body, tensor, values, np.zeros(512, np.uint16), writes="AB", schedule=schedule)


def test_a_prefetch_needs_a_map_and_changes_nothing() -> None:
    values, tensor = matrix()
    line = "@!%p1 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {0, 0}];\n"
    line += "@!%p1 prefetch.tensormap [%rd1];\n@!%p1 cp.async.bulk.prefetch.L2.global [%rd2], 64;\n"
    before = values.copy()
    run(line, tensor, values, np.zeros(512, np.uint16))
    np.testing.assert_array_equal(values, before)
    with pytest.raises(IllegalInstruction, match="no tensor map"):
        run(line.replace("[%rd1, ", "[%rd2, "), tensor, values, np.zeros(512, np.uint16))


def test_cache_hints_change_nothing() -> None:
    values, tensor = matrix()
    got = np.zeros(512, dtype=np.uint16)
    body = "mov.b64 %rd9, 0x14F0000000000000;\n"
    body += load(1024, f"{LOAD_2D}.L2::cache_hint [%r3], [%rd1, {{8, 3}}], [%r2], %rd9") + out(1024)
    run(body, tensor, values, got)
    np.testing.assert_array_equal(got, box_of(values, 8, 3, 100))
