"""Registers handed between warps, elections, fences, dependent launches and cache policies."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import emulate
from warptile.emulator.sync.register_pool import initial_count
from warptile.errors import DataRace, Deadlock, EmulationError, RegisterMisuse
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse


def run_text(text: str, directives: str = "") -> None:
    """Run one block of 384 threads."""
    head = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k()\n"
    module = parse(f"{head}{directives}\n{{\n.reg .b64 p;\n{text}\nret;\n}}")
    emulate(module, LaunchSpec("k", (1, 1, 1), (384, 1, 1), ()), {}, arch="sm_90a")


def specialised(producer: str, consumer: str, threads: int = 384) -> None:
    out = np.zeros(2 * threads, np.int32)
    run_cuda(
        f"""__global__ void __launch_bounds__({threads}, 1) k(int* o) {{
             if (threadIdx.x < 128) asm volatile("setmaxnreg.{producer};");
             else asm volatile("setmaxnreg.{consumer};");
             o[threadIdx.x + blockIdx.x * {threads}] = threadIdx.x;
           }}""",
        "k", [out], block=threads, grid=2,
    )  # fmt: skip
    assert out.tolist() == 2 * list(range(threads))


def test_registers_that_one_warpgroup_gives_are_taken_by_the_others() -> None:
    specialised("dec.sync.aligned.u32 24", "inc.sync.aligned.u32 240")  # (24 + 2 * 240) * 128 = 64512 = 168 * 384
    specialised("dec.sync.aligned.u32 24", "dec.sync.aligned.u32 160")


@pytest.mark.parametrize(("dec", "inc"), [(32, 240), (40, 240), (80, 224)])
def test_more_registers_than_there_are_hang(dec: int, inc: int) -> None:
    with pytest.raises(Deadlock) as caught:
        specialised(f"dec.sync.aligned.u32 {dec}", f"inc.sync.aligned.u32 {inc}")
    assert f"for {(inc - 168) * 32} registers more than the 168 a thread of its warp" in str(caught.value)
    assert "started with 168 a thread, 64512 in all" in str(caught.value)


@pytest.mark.parametrize(("change", "than"), [("inc", "more than 160"), ("dec", "fewer than 232")])
def test_up_goes_only_up_and_down_only_down(change: str, than: str) -> None:
    text = f"setmaxnreg.inc.sync.aligned.u32 168;\nsetmaxnreg.{change}.sync.aligned.u32 {than.split()[-1]};"
    with pytest.raises(RegisterMisuse, match=f"have 168 registers each: that is {than}"):
        run_text(text, ".maxntid 384, 1, 1\n.minnctapersm 1")


# Registers that ptxas 13.0 reports ("Used 168 registers") for a kernel with these directives and these requests.
ALLOCATED = [
    ("maxntid 384 minnctapersm 1", [240], 168),
    ("maxntid 384 minnctapersm 1", [160], 160),
    ("maxntid 256 minnctapersm 1", [248], 248),
    ("maxntid 256 minnctapersm 1", [208, 240], 240),
    ("reqntid 256 minnctapersm 1", [120], 120),
    ("maxntid 256 minnctapersm 2", [248], 128),
    ("maxntid 288 minnctapersm 1", [248], 168),
    ("maxntid 416 minnctapersm 2", [248], 72),
    ("maxntid 96 minnctapersm 5", [248], 128),
    ("maxntid 640 minnctapersm 1", [], 96),
    ("maxnreg 128", [248], 128),
    ("maxnreg 128", [120], 120),
    ("maxntid 256", [248], None),
]


@pytest.mark.parametrize(("directives", "requests", "registers"), ALLOCATED)
def test_registers_at_the_start_are_those_that_ptxas_allocates(
    directives: str, requests: list[int], registers: int | None
) -> None:
    words = directives.split()
    given = {name: (int(value),) for name, value in zip(words[::2], words[1::2], strict=True)}
    text = "\n".join(f"setmaxnreg.inc.sync.aligned.u32 {count};" for count in requests)
    module = parse(f".version 8.7\n.target sm_90a\n.address_size 64\n.entry k()\n{{\n{text}\nret;\n}}")
    assert initial_count(given, module.functions["k"].body or ()) == registers


def test_a_kernel_of_two_warpgroups_starts_with_what_its_consumer_takes() -> None:
    specialised("inc.sync.aligned.u32 248", "dec.sync.aligned.u32 48", threads=256)


def test_registers_at_the_start() -> None:
    assert initial_count({}) is None
    assert initial_count({"maxntid": (384, 1, 1)}) is None  # ptxas: unable to determine register count at entry
    assert initial_count({"maxntid": (384, 1, 1), "minnctapersm": 1}) == 168
    assert initial_count({"maxntid": (128, 2, 1), "minnctapersm": 2}) == 128
    assert initial_count({"maxntid": (128, 1, 1), "minnctapersm": 1}) == 256
    assert initial_count({"maxntid": (128, 1, 1), "maxnreg": 90}) == 96


def test_without_a_bound_on_registers_setmaxnreg_does_nothing() -> None:
    run_text("setmaxnreg.inc.sync.aligned.u32 240;")


def test_one_lane_of_each_warp_is_elected() -> None:
    out = np.zeros(64, np.int32)
    run_cuda(
        """__global__ void k(int* o) {
             unsigned leader, me;
             asm volatile("{ .reg .pred p; elect.sync %0|p, 0xffffffff; selp.u32 %1, 1, 0, p; }"
                          : "=r"(leader), "=r"(me));
             o[threadIdx.x] = 10 * leader + me;
           }""",
        "k", [out], block=64,
    )  # fmt: skip
    assert out.tolist() == [1, *[0] * 31] * 2


FENCES = (
    "fence.proxy.async", "fence.proxy.async.global", "fence.proxy.async.shared::cta", "fence.proxy.alias",
    "fence.proxy.async.shared::cluster", "fence.mbarrier_init.release.cluster", "fence.acq_rel.cluster", "fence.sc.cta",
    "fence.acq_rel.gpu", "membar.gl", "membar.cta", "fence.proxy.tensormap::generic.release.gpu",
    "griddepcontrol.wait", "griddepcontrol.launch_dependents",
)  # fmt: skip


def test_fences_and_hints_that_change_no_value() -> None:
    out = np.zeros(32, np.int32)
    body = " ".join(f'asm volatile("{fence};" ::: "memory");' for fence in FENCES)
    run_cuda(
        "__global__ void k(int* o) {" + body + """
           asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(o) : "memory");
           unsigned long long a, b;
           asm volatile("createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %0, 0.5;" : "=l"(a));
           asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(b));
           asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;"
                        :: "l"(o + threadIdx.x), "r"(3), "l"(a) : "memory");
           o[threadIdx.x] += a == b;
         }""",
        "k", [out],
    )  # fmt: skip
    assert (out >= 3).all()


def wait_then_double(condition: str, overlaps: bool, early: str = "0") -> np.ndarray:
    """Two blocks; threads for which ``condition`` holds wait for the launch before; ``early`` is evaluated before."""
    data = np.arange(64, dtype=np.int32)
    run_cuda(
        f"""__global__ void k(int* o) {{
             const int i = blockIdx.x * 32 + threadIdx.x, first = {early};
             if ({condition}) asm volatile("griddepcontrol.wait;" ::: "memory");
             else if (first == 0) return;
             o[i] = o[i] * 2 + first;
           }}""",
        "k", [data], grid=2, outputs={0: False}, overlaps_previous=overlaps,
    )  # fmt: skip
    return data


def test_a_launch_that_overlaps_the_one_before_waits_for_it_in_every_thread() -> None:
    assert wait_then_double("true", True).tolist() == list(range(0, 128, 2))
    early_read = r"ld\.volatile.*thread \(0, 0, 0\) of block \(0, 0, 0\) accesses 0 and has not"
    with pytest.raises(DataRace, match=early_read) as at:
        wait_then_double("true", True, early="*(volatile int*)(o + i)")
    assert (at.value.kind, at.value.location.line) == ("launch-access", 2)
    with pytest.raises(DataRace, match=r"thread \(9, 0, 0\) of block \(1, 0, 0\) ends and has not") as at:
        wait_then_double("i != 41", True)
    assert at.value.kind == "launch-end"
    with pytest.raises(DataRace, match=r"thread \(9, 0, 0\) of block \(1, 0, 0\) accesses 0"):
        wait_then_double("i != 41", True, early="1")
    assert wait_then_double("i != 41", False, early="1")[41] == 83


@pytest.mark.parametrize(
    "text",
    ["fence.proxy.cuda;", "fence.acq_rel;", "setmaxnreg.inc.sync.aligned.u32 60;", "createpolicy.L2.b64 p, 1;",
     "griddepcontrol.start;", "fence.mbarrier_init.cluster;"],
)  # fmt: skip
def test_what_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(EmulationError, match=text.split(".")[0]):
        run_text(text)
