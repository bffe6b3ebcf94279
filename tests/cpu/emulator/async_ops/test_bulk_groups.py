"""Groups of bulk copies, copies between blocks of a cluster, and tensor maps of many dimensions or in odd places."""

from __future__ import annotations

import numpy as np
import pytest
from test_bulk_copies import (
    COMMIT,
    FENCE,
    INIT,
    LOAD_2D,
    SCHEDULES,
    STORE_1D,
    STORE_2D,
    WAIT,
    box_of,
    into,
    load,
    matrix,
    out,
    run,
)

from warptile.errors import DataRace, EmulationError, IllegalAddress, IllegalInstruction, UninitializedRead
from warptile.launch.tensor_map import TensorMap

NOTHING = np.zeros(16, dtype=np.uint8)
CLUSTER = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("keep", "right"), [(0, True), (1, True), (2, False), (3, False)])
def test_a_wait_keeps_the_newest_groups(schedule: str, keep: int, right: bool) -> None:
    """Two groups, and an empty one, are under way; the source of the first is written again after the wait."""
    b = np.arange(512, dtype=np.uint32)
    body = into(1024) + FENCE
    body += f"@!%p1 {STORE_1D} [%rd2+1024], [%r3], 256;\n" + COMMIT
    body += f"@!%p1 {STORE_1D} [%rd2+1536], [%r3+256], 256;\n" + COMMIT
    body += f"cp.async.bulk.wait_group.read {keep};\nbar.sync 0;\nst.shared.u32 [%r21], %r1;\n"
    body += "cp.async.bulk.wait_group 0;\n"
    if right:
        run(body, None, NOTHING, b, schedule=schedule)
        np.testing.assert_array_equal(b[256:320], np.arange(64))
        np.testing.assert_array_equal(b[384:448], np.arange(64, 128))
    else:
        with pytest.raises(DataRace, match="nobody has waited for the copy"):
            run(body, None, NOTHING, b, schedule=schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_wait_for_reading_is_no_wait_for_writing(schedule: str) -> None:
    body = into(256) + FENCE + f"@!%p1 {STORE_1D} [%rd2+256], [%r3], 256;\n" + COMMIT
    look = "bar.sync 0;\nld.global.u32 %r9, [%rd4+256];\nst.global.u32 [%rd4+512], %r9;\n"
    b = np.arange(256, dtype=np.uint32)
    with pytest.raises(DataRace, match=r"nobody has waited for the copy.*wait_group"):
        run(body + "cp.async.bulk.wait_group.read 0;\n" + look, None, NOTHING, b, schedule=schedule)
    run(body + "cp.async.bulk.wait_group 0;\n" + look, None, NOTHING, b, schedule=schedule)
    np.testing.assert_array_equal(b[128:192], np.arange(64))


def test_the_source_must_have_been_written() -> None:
    body = f"@!%p1 {STORE_1D} [%rd2], [%r3], 256;\n" + COMMIT + "cp.async.bulk.wait_group 0;"
    with pytest.raises(UninitializedRead, match=r"reads shared memory .* which nothing has written"):
        run(body, None, NOTHING, np.zeros(64, np.uint32))


def exchange(copy: str, peer_bytes: int = 256) -> str:
    """Block 0 brings bytes of its tile to block 1, which waits for them and writes them out."""
    start = """
    mov.u32 %r5, %cluster_ctarank;
    setp.ne.u32 %p4, %r5, 0;
    or.pred %p5, %p4, %p1;
    mapa.shared::cluster.u32 %r6, %r3, 1;
    mapa.shared::cluster.u32 %r7, %r2, 1;
    """
    body = start + INIT + f"@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {peer_bytes};\n"
    body += into(256) + FENCE + CLUSTER + f"@!%p5 {copy};\n@!%p4 bra over;\n" + WAIT
    return body + "ld.shared.u32 %r9, [%r21+256];\nst.global.u32 [%rd4+256], %r9;\nover:\n" + CLUSTER


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bytes_go_to_another_block(schedule: str) -> None:
    copy = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6+256], [%r3], 256, [%r7]"
    b = np.arange(128, dtype=np.uint32)
    run(exchange(copy), None, NOTHING, b, grid=2, cluster=2, schedule=schedule)
    np.testing.assert_array_equal(b, np.tile(np.arange(64), 2))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_reduction_in_another_block(schedule: str) -> None:
    copy = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32"
    body = exchange(f"{copy} [%r6+256], [%r3], 256, [%r7]")
    body = body.replace(FENCE, "st.shared.u32 [%r21+256], 1000;\n" + FENCE, 1)
    b = np.arange(128, dtype=np.uint32)
    run(body, None, NOTHING, b, grid=2, cluster=2, schedule=schedule)
    np.testing.assert_array_equal(b[64:], 1000 + np.arange(64))


@pytest.mark.parametrize(
    ("copy", "error", "said"),
    [
        ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%rd2], 256, [%r7]", IllegalAddress,
         r"another CTA's takes \.shared::cluster"),
        (f"{LOAD_2D}.multicast::cluster [%r3], [%rd1, {{0, 0}}], [%r2], %h1", IllegalInstruction,
         "multicast mask 0x7 in a cluster of 2 CTAs"),
    ],
)  # fmt: skip
def test_wrong_ways_to_other_blocks_are_told(copy: str, error: type[EmulationError], said: str) -> None:
    values, tensor = matrix()
    body = "mov.u16 %h1, 7;\n" + exchange(copy)
    with pytest.raises(error, match=said):
        run(body, tensor, values, np.arange(128, dtype=np.uint32), grid=2, cluster=2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_five_dimensions_with_steps(schedule: str) -> None:
    values = np.random.default_rng(2).integers(1, 1 << 30, (3, 4, 3, 5, 8)).astype(np.int32)
    strides = tuple(reversed(values.strides))[1:]
    tensor = TensorMap("A", "s32", (8, 5, 3, 4, 3), strides, box=(8, 3, 2, 3, 2), element_strides=(1, 2, 1, 2, 1))
    got = np.zeros((2, 2, 2, 2, 8), dtype=np.int32)
    where = "[%rd1, {0, 1, -1, 2, 2}]"
    body = load(got.nbytes, f"{LOAD_2D.replace('2d', '5d')} [%r3], {where}, [%r2]") + out(got.nbytes)
    run(body, tensor, values, got, schedule=schedule)
    wanted = np.zeros_like(got)
    for i, j, k, m in np.ndindex(2, 2, 2, 2):
        at = (2 + i, 2 + 2 * j, -1 + k, 1 + 2 * m)
        if all(0 <= x < n for x, n in zip(at, (3, 4, 3, 5), strict=True)):
            wanted[i, j, k, m] = values[at]
    np.testing.assert_array_equal(got, wanted)
    assert wanted.any()


def test_a_copy_of_a_map_is_a_map() -> None:
    values, tensor = matrix()
    b = np.zeros(640, dtype=np.uint16)
    body = "@%p1 bra copied;\nadd.s64 %rd7, %rd2, 1024;\n"
    for word in range(0, 128, 8):
        body += f"ld.param.u64 %rd8, [map+{word}];\nst.global.u64 [%rd7+{word}], %rd8;\n"
    body += "fence.proxy.tensormap::generic.acquire.gpu [%rd7], 128;\ncopied:\nbar.sync 0;\n"
    body += load(1024, f"{LOAD_2D} [%r3], [%rd7, {{8, 3}}], [%r2]") + out(1024)
    run(body, tensor, values, b)
    np.testing.assert_array_equal(b[:512], box_of(values, 8, 3, 100))
    with pytest.raises(DataRace, match=r"that this kernel wrote, and no fence.proxy.tensormap::generic.acquire"):
        run(body.replace("fence.proxy.tensormap::generic.acquire.gpu [%rd7], 128;", ""), tensor, values, b)


def test_bytes_are_counted_inside_the_tensor() -> None:
    values, tensor = matrix()
    body = load(1024, f"{LOAD_2D} [%r3], [%rd1, {{64, 36}}], [%r2]")
    body += f"@!%p1 {STORE_2D} [%rd1, {{64, 36}}], [%r3];\n@!%p1 {STORE_1D} [%rd2], [%r3+256], 48;\n"
    report = run(body + COMMIT + "cp.async.bulk.wait_group 0;", tensor, values, np.zeros(64, np.uint32), writes="AB")
    # 36 columns of 2 bytes in 4 rows; five chunks of 16 bytes in 4 rows; and 48 plain bytes.
    assert report.counters["global_load_bytes"] == 36 * 2 * 4
    assert report.counters["global_store_bytes"] == 5 * 16 * 4 + 48
    assert report.counters["global_load_sectors"] == report.counters["global_store_sectors"] == 0
