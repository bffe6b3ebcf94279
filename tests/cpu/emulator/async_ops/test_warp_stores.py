"""Bulk stores that a whole warp executes, and those that a thread does not wait for before it ends."""

from __future__ import annotations

import numpy as np
import pytest

from warptile.emulator import EmulationReport, emulate, select_checks
from warptile.errors import IllegalAddress
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.launch.tensor_map import TensorMap
from warptile.ptx import parse

SCHEDULES = ("latest", "earliest", "random:3")

KERNEL = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 given)
{
    .reg .pred %p<3>;
    .reg .b32 %t, %warp, %half, %at, %zero, %tile, %first;
    .reg .b64 %map, %out, %wide;
    .shared .align 128 .b8 tile[512];
    mov.u32 %t, %tid.x;
    mov.u32 %tile, tile;
    mov.b64 %map, map;
    mov.u32 %zero, 0;
    ld.param.u64 %out, [given];
    shl.b32 %at, %t, 2;
    add.u32 %at, %at, %tile;
    st.shared.u32 [%at], %t;
    st.shared.u32 [%at+256], %t;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %warp, %t, 5;
    shr.u32 %half, %t, 4;
    setp.ne.u32 %p1, %warp, 0;
    @%p1 ret;
    BODY
    ret;
}
"""
COMMIT = "cp.async.bulk.commit_group;\n"
WAIT = COMMIT + "cp.async.bulk.wait_group 0;\n"
TENSOR = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
PLAIN = "cp.async.bulk.global.shared::cta.bulk_group"


def run(body: str, schedule: str = "latest", **options: object) -> tuple[np.ndarray, EmulationReport]:
    """64 threads write their numbers twice to 512 bytes of shared memory; the first warp goes on with ``body``.

    The operand has 8 rows of 16 words, and one box is all of it.
    """
    out = np.zeros((16, 16), np.uint32)
    tensor = TensorMap("out", "u32", (16, 8), (64,), (16, 8))
    spec = LaunchSpec("k", (1, 1, 1), (64, 1, 1), (tensor, Pointer("out")))
    report = emulate(
        parse(KERNEL.replace("BODY", body)), spec, {"out": out}, accesses={"out": Access(writes=True)}, arch="sm_90a",
        schedule=schedule, **options,  # type: ignore[arg-type]
    )  # fmt: skip
    return out.reshape(-1), report


def sectors(report: EmulationReport) -> int:
    return int(report.counters["tma_store_sectors"])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("store", [f"{TENSOR} [%map, {{%zero, %zero}}], [%tile];", f"{PLAIN} [%out], [%tile], 512;"])
def test_lanes_that_store_the_same_make_one_store(store: str, schedule: str) -> None:
    out, report = run(store + WAIT, schedule)
    np.testing.assert_array_equal(out[:128], np.arange(128) % 64)
    assert sectors(report) == 512 // 32


def test_each_distinct_set_of_operands_is_one_store() -> None:
    """Half-warps store the first and the second 256 bytes, each its own: 8 sectors each."""
    body = f"""
    mul.wide.u32 %wide, %half, 256;
    add.u64 %out, %out, %wide;
    mad.lo.u32 %tile, %half, 256, %tile;
    {PLAIN} [%out], [%tile], 256;
    """
    out, report = run(body + WAIT)
    np.testing.assert_array_equal(out[:128], np.arange(128) % 64)
    assert sectors(report) == 2 * 256 // 32


def test_a_reduction_by_a_warp_is_made_by_every_lane() -> None:
    """ptxas repeats it for each lane, as the PTX ISA says, for it changes what it finds."""
    out, _ = run("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%tile], 512;" + WAIT)
    np.testing.assert_array_equal(out[:128], 32 * (np.arange(128) % 64))


ONE = "mov.u32 %first, %laneid;\nsetp.ne.u32 %p2, %first, 0;\n@%p2 ret;\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ending", ["", COMMIT, COMMIT + "cp.async.bulk.wait_group.read 1;"])
def test_a_store_that_still_reads_at_the_end_is_a_check_of_its_own(ending: str, schedule: str) -> None:
    body = ONE + f"{PLAIN} [%out], [%tile], 512;" + ending
    with pytest.raises(IllegalAddress, match="ends before this copy has read shared memory"):
        run(body, schedule)
    out, report = run(body, schedule, collect=True)
    np.testing.assert_array_equal(out[:128], np.arange(128) % 64)
    (found,) = report.findings
    assert (found.check, found.severity, found.stopped) == ("bulk-exit", "model", False)
    for checks in (select_checks(ignore=["bulk-exit"]), select_checks(model="common")):
        out, report = run(body, schedule, checks=checks, collect=True)
        np.testing.assert_array_equal(out[:128], np.arange(128) % 64)
        assert not report.findings
