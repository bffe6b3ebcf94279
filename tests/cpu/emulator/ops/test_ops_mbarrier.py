"""mbarrier: phases, arrivals, bytes and waits, on small kernels."""

from __future__ import annotations

import re

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import DEFAULT_CHECKS, emulate
from warptile.errors import DataRace, Deadlock, MbarrierMisuse, UninitializedRead, UnknownInstruction
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

SCHEDULES = ("latest", "earliest", "random:1", "random:2")

PREFIX = """
typedef unsigned long long u64;
__device__ unsigned at(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ void init(u64* b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at(b)), "r"(n) : "memory");
}
__device__ u64 arrive(u64* b) {
  u64 s; asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(s) : "r"(at(b)) : "memory"); return s;
}
__device__ u64 arrive(u64* b, int n) {
  u64 s;
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], %2;" : "=l"(s) : "r"(at(b)), "r"(n) : "memory");
  return s;
}
__device__ void expect(u64* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at(b)), "r"(bytes) : "memory");
}
__device__ void complete(u64* b, int bytes) {
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(at(b)), "r"(bytes) : "memory");
}
__device__ bool test(u64* b, unsigned parity) {
  unsigned r;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(r) : "r"(at(b)), "r"(parity) : "memory");
  return r;
}
__device__ bool test_state(u64* b, u64 state) {
  unsigned r;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(r) : "r"(at(b)), "l"(state) : "memory");
  return r;
}
__device__ bool once(u64* b, unsigned parity) {
  unsigned r;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, 1000; selp.u32 %0, 1, 0, p; }"
               : "=r"(r) : "r"(at(b)), "r"(parity) : "memory");
  return r;
}
__device__ void wait(u64* b, unsigned parity) { while (!once(b, parity)) ; }
"""

RING = (
    PREFIX
    + """__global__ void k(int* o) {  // 32 producers, 64 consumers, two stages
  __shared__ int s[2][32];
  __shared__ u64 full[2], empty[2];
  if (threadIdx.x == 0) for (int i = 0; i < 2; ++i) { init(&full[i], 32); init(&empty[i], 64); }
  __syncthreads();
  int sum = 0;
  #pragma unroll 1
  for (int i = 0; i < 9; ++i) {
    int stage = i % 2, turn = i / 2 % 2;
    if (threadIdx.x < 32) {
      EMPTY;
      s[stage][threadIdx.x] = 100 * i + threadIdx.x;
      arrive(&full[stage]);
    } else {
      FULL;
      sum += s[stage][31 - threadIdx.x % 32];
      arrive(&empty[stage]);
    }
  }
  if (threadIdx.x >= 32) o[threadIdx.x - 32 + 64 * blockIdx.x] = sum;
}"""
)


def ring(**replaced: str) -> str:
    text = RING
    for name, value in {
        "EMPTY": "wait(&empty[stage], turn ^ 1)",
        "FULL": "wait(&full[stage], turn)",
        **replaced,
    }.items():
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_ring_of_stages_between_producers_and_consumers(schedule: str) -> None:
    out = np.zeros(64 * 3, np.int32)
    run_cuda(ring(), "k", [out], block=96, grid=3, schedule=schedule)
    expected = 100 * 36 + 9 * (31 - np.arange(192) % 32)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("schedule", ["latest", "random:3"])
@pytest.mark.parametrize(
    ("replaced", "kind"),
    [
        ({"EMPTY": "(void)0"}, "read-write|write-read|write-write"),
        ({"FULL": "wait(&full[stage], turn ^ 1)"}, "write-read|read-write"),
        ({"EMPTY": "wait(&empty[stage], turn)"}, "deadlock"),
    ],
)
def test_what_waits_leave_out_is_reported(replaced: dict[str, str], kind: str, schedule: str) -> None:
    with pytest.raises((DataRace, Deadlock, MbarrierMisuse)) as caught:
        run_cuda(ring(**replaced), "k", [np.zeros(64, np.int32)], block=96, schedule=schedule)
    if kind == "deadlock":
        assert isinstance(caught.value, Deadlock)
        assert "for phase 0 (parity 0) of the mbarrier" in str(caught.value)
        assert "lacks 64 of 64 arrivals" in str(caught.value)
    elif isinstance(caught.value, DataRace):
        assert caught.value.kind in kind.split("|")


def run_one(
    body: str, count: int = 8, block: int = 32, schedule: str = "latest", checks: frozenset[str] = DEFAULT_CHECKS
) -> list[int]:
    out = np.full(count, -1, np.int32)
    run_cuda(
        PREFIX + "__global__ void k(int* o) { __shared__ u64 b; int t = threadIdx.x;" + body + "}",
        "k", [out], block=block, outputs={0: False}, schedule=schedule, checks=checks,
    )  # fmt: skip
    return out.tolist()


def test_phases_and_parities_of_one_thread() -> None:
    found = run_one(
        """if (t) return;
           init(&b, 2);
           o[0] = test(&b, 0); o[1] = test(&b, 1);
           u64 s = arrive(&b);
           o[2] = test(&b, 0);
           arrive(&b);
           o[3] = test(&b, 0); o[4] = test(&b, 1); o[5] = test_state(&b, s);
           s = arrive(&b, 2);
           o[6] = test(&b, 1); o[7] = test(&b, 0);"""
    )
    assert found == [0, 1, 0, 1, 0, 1, 1, 0]


def test_a_phase_waits_for_bytes_too() -> None:
    found = run_one(
        """if (t) return;
           init(&b, 1);
           expect(&b, 96); o[0] = test(&b, 0);
           complete(&b, 64); o[1] = test(&b, 0);
           complete(&b, 32); o[2] = test(&b, 0);
           complete(&b, 16); o[3] = test(&b, 1);  // before they are expected
           expect(&b, 16); o[4] = test(&b, 1);"""
    )
    assert found[:5] == [0, 0, 1, 0, 1]


def test_states_count_pending_arrivals() -> None:
    found = run_one(
        """if (t == 0) init(&b, 40);
           __syncwarp();
           u64 s; unsigned n;
           asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(s) : "r"(at(&b)) : "memory");
           asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(s));
           o[t] = n;""",
        32,
    )
    assert sorted(found) == list(range(9, 41))


def test_arriving_and_dropping_lowers_what_later_phases_expect() -> None:
    found = run_one(
        """if (t) return;
           init(&b, 2);
           asm volatile("mbarrier.arrive_drop.shared.b64 _, [%0];" :: "r"(at(&b)) : "memory");
           arrive(&b); o[0] = test(&b, 0);
           arrive(&b); o[1] = test(&b, 1);
           asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(at(&b)) : "memory");
           init(&b, 1); o[2] = test(&b, 0); o[3] = test(&b, 1);"""
    )
    assert found[:4] == [1, 1, 0, 1]


def test_more_arrivals_than_a_phase_takes_go_to_the_next_one() -> None:
    found = run_one(
        """if (t == 0) init(&b, 16);
           __syncwarp();
           u64 s = arrive(&b);  // 32 arrivals: two phases
           if (t == 31) { o[0] = test_state(&b, s); o[1] = test(&b, 0); o[2] = test(&b, 1); }"""
    )
    assert found[:3] == [1, 0, 1]


def test_a_wait_that_nobody_answers_returns_false_so_that_the_thread_may_do_it_itself() -> None:
    assert run_one("if (t) return; init(&b, 1); if (!once(&b, 0)) { o[0] = 7; arrive(&b); } o[1] = once(&b, 0);")[
        :2
    ] == [7, 1]


def test_generic_addresses() -> None:
    found = run_one(
        """if (t) return;
           asm volatile("mbarrier.init.b64 [%0], 1;" :: "l"(&b) : "memory");
           asm volatile("{ .reg .b64 s; mbarrier.arrive.b64 s, [%0]; }" :: "l"(&b) : "memory");
           o[0] = test(&b, 0);"""
    )
    assert found[0] == 1


@pytest.mark.parametrize("call", ["once(&b, 0)", "test(&b, 0)"])
def test_a_deadlock_says_what_is_missing(call: str) -> None:
    with pytest.raises(Deadlock) as caught:
        run_one("if (t == 0) init(&b, 3); __syncwarp(); if (t == 5) expect(&b, 128); while (!" + call + ");")
    text = str(caught.value)
    assert "for phase 0 (parity 0) of the mbarrier at byte 1024" in text
    assert "lacks 2 of 3 arrivals and 128 bytes" in text
    assert "32 threads, first thread (0, 0, 0) of block (0, 0, 0)" in text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("arrive(&b);", "is no mbarrier: mbarrier.init must come first"),
        ("if (t == 0) { init(&b, 1); expect(&b, 8); arrive(&b); }", "waits for 0 of 1 arrivals and 8 bytes"),
        ("if (t == 0) init(&b, o[7] + 1);", "a count of 0; it is 1 to 1048575"),
        ("if (t == 0) { init(&b, 1); complete(&b, o[7] + 1048577); }", "becomes -1048576; it is at most 1048575"),
        ("if (t == 0) { init(&b, 1); init(&b, 1); }", "again: mbarrier.inval must come before"),
        ("if (t == 0) { init(&b, 1); o[0] = *(volatile int*)&b; }", "accesses .* where an mbarrier lies"),
        ("if (t == 0) { init(&b, 1); ((volatile int*)&b)[1] = 3; }", "byte 1028, where an mbarrier lies"),
        (
            "if (t == 0) { init(&b, 1); u64 s = arrive(&b); arrive(&b); test_state(&b, s); }",
            "waits for phase 0 .* which is in phase 2; only that one and the one before",
        ),
    ],
)
def test_misuse(body: str, message: str) -> None:
    with pytest.raises(MbarrierMisuse, match=re.compile(message)) as caught:
        run_one(body)
    assert " of block (0, 0, 0)" in str(caught.value)
    assert caught.value.location is not None


def test_memory_of_mbarriers_may_be_used_again_where_that_is_not_checked() -> None:
    """As on the hardware: the bytes change. What the ISA calls undefined, code of compilers does (Triton 3.6)."""
    body = """if (t == 0) { init(&b, 3); arrive(&b); init(&b, 1); arrive(&b); o[0] = test(&b, 0);
                             *(volatile int*)&b = 7; o[1] = *(volatile int*)&b; }"""
    with pytest.raises(MbarrierMisuse, match=r"again: mbarrier\.inval must come before"):
        run_one(body)
    unchecked = DEFAULT_CHECKS - {"reuse"}
    assert run_one(body, checks=unchecked)[:2] == [1, 7]
    with pytest.raises(MbarrierMisuse, match=r"is no mbarrier: mbarrier\.init must come first"):
        run_one("if (t == 0) { init(&b, 2); ((volatile int*)&b)[1] = 3; arrive(&b); }", checks=unchecked)
    for again in ("init(&b, 2);", "*(volatile int*)&b = 7;"):
        with pytest.raises(MbarrierMisuse, match="while threads wait for it"):
            run_one(
                f"if (t == 0) init(&b, 2); __syncwarp(); if (t) wait(&b, 0); else {{ {again} }}",
                checks=unchecked - {"races"},
            )


def test_an_mbarrier_in_global_memory_is_refused() -> None:
    with pytest.raises(MbarrierMisuse, match="lies in shared memory, and this address in global memory"):
        run_one('if (t == 0) asm volatile("mbarrier.init.b64 [%0], 1;" :: "l"(o) : "memory");')


def test_using_an_mbarrier_that_another_thread_has_just_made_is_a_race() -> None:
    with pytest.raises(DataRace, match="no barrier"):
        run_one("if (t == 0) init(&b, 64); if (t >= 32) arrive(&b);", block=64)


COPIES = (
    PREFIX
    + """#define COPY(to, from) \\
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(to)), "l"(from) : "memory")
#define TRACK(how, b) asm volatile("cp.async.mbarrier.arrive" how ".shared.b64 [%0];" :: "r"(at(b)) : "memory")
__global__ void k(int* o, const int* a) {
  __shared__ int s[32];
  __shared__ u64 b;
  if (threadIdx.x == 0) init(&b, COUNT);
  __syncthreads();
  if (threadIdx.x < 32) { COPY(&s[threadIdx.x], a + threadIdx.x); ARRIVE; }
  else { WAIT; o[threadIdx.x - 32] = s[63 - threadIdx.x]; }
}"""
)


def copies(arrive: str, wait: str = "wait(&b, 0)", count: int = 32, schedule: str = "latest") -> list[int]:
    out, source = np.zeros(32, np.int32), np.arange(50, 82, dtype=np.int32)
    text = COPIES.replace("ARRIVE;", arrive + ";").replace("WAIT;", wait + ";").replace("COUNT", str(count))
    run_cuda(text, "k", [out, source], block=64, schedule=schedule)
    return out.tolist()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arrive", ['TRACK(".noinc", &b)', 'TRACK("", &b); arrive(&b)'])
def test_copies_arrive_when_they_are_over(arrive: str, schedule: str) -> None:
    assert copies(arrive, schedule=schedule) == list(range(81, 49, -1))


@pytest.mark.parametrize("schedule", ["latest", "earliest", "random:4"])
@pytest.mark.parametrize(
    ("arrive", "wait"), [("arrive(&b)", "wait(&b, 0)"), ('TRACK(".noinc", &b)', "wait(&b, 1)"), ('TRACK("", &b)', "")]
)
def test_copies_that_are_not_waited_for(arrive: str, wait: str, schedule: str) -> None:
    # Where the phase is over before the wait for the wrong one, that wait has no end.
    with pytest.raises((DataRace, UninitializedRead, Deadlock) if "1)" in wait else (DataRace, UninitializedRead)):
        copies(arrive, wait, schedule=schedule)


def test_an_increment_leaves_the_arrivals_to_the_threads() -> None:
    with pytest.raises(Deadlock, match="lacks 32 of 32 arrivals"):
        copies('TRACK("", &b)')


def test_what_a_thread_does_behind_the_arrival_of_its_copies_is_not_covered() -> None:
    with pytest.raises(DataRace):
        copies('TRACK(".noinc", &b); s[threadIdx.x] = 3', schedule="earliest")


ORDER = (
    PREFIX
    + """__device__ void arrive_relaxed(u64* b) {
  u64 s;
  asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 %0, [%1];" : "=l"(s) : "r"(at(b)) : "memory");
}
__device__ void wait_relaxed(u64* b, unsigned parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 p, [%0], %1;"
               "@!p bra again; }"
               :: "r"(at(b)), "r"(parity) : "memory");
}
__global__ void k(int* o) {  // the first warp writes, the second one reads
  __shared__ int s[32];
  __shared__ u64 b;
  int t = threadIdx.x % 32;
  if (threadIdx.x == 0) init(&b, COUNT);
  __syncthreads();
  if (threadIdx.x < 32) { WRITER }
  else { READER o[t] = s[31 - t]; }
}"""
)


def order(writer: str, reader: str, count: int = 32, schedule: str = "latest") -> list[int]:
    out = np.zeros(32, np.int32)
    text = ORDER.replace("WRITER", writer).replace("READER", reader).replace("COUNT", str(count))
    run_cuda(text, "k", [out], block=64, schedule=schedule)
    return out.tolist()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("writer", "reader", "count"),
    [
        ("s[t] = t; arrive(&b);", "wait(&b, 0);", 32),
        ("s[t] = t; __syncwarp(); if (t == 0) arrive(&b);", "wait(&b, 0);", 1),
        ("s[t] = t; __syncwarp(); if (t == 0) expect(&b, 8); if (t == 1) complete(&b, 8);", "wait(&b, 0);", 1),
        ("s[t] = t; arrive(&b);", "if (t == 5) wait(&b, 0); __syncwarp();", 32),
        ("s[t] = t; arrive(&b); wait(&b, 0); arrive(&b);", "arrive(&b); wait(&b, 0); arrive(&b); wait(&b, 1);", 64),
        ("s[t] = t; arrive(&b);", "u64 v = arrive(&b); while (!test_state(&b, v)) ;", 64),
    ],
)
def test_what_lies_before_an_arrival_lies_before_the_end_of_a_wait(
    writer: str, reader: str, count: int, schedule: str
) -> None:
    assert order(writer, reader, count, schedule) == list(range(31, -1, -1))


@pytest.mark.parametrize("schedule", ["latest", "random:2"])
@pytest.mark.parametrize(
    ("writer", "reader", "count"),
    [
        ("arrive(&b); s[t] = t;", "wait(&b, 0);", 32),
        ("s[t] = t; arrive_relaxed(&b);", "wait(&b, 0);", 32),
        ("s[t] = t; arrive(&b);", "wait_relaxed(&b, 0);", 32),
        ("s[t] = t; if (t == 0) arrive(&b);", "wait(&b, 0);", 1),
        ("s[t] = t; arrive(&b);", "if (t == 5) wait(&b, 0);", 32),
        ("s[t] = t; arrive(&b);", "once(&b, 0);", 33),
    ],
)
def test_what_no_phase_orders_is_a_race(writer: str, reader: str, count: int, schedule: str) -> None:
    with pytest.raises(DataRace):
        order(writer, reader, count, schedule)


def test_a_thread_that_comes_too_late_for_a_phase_waits_for_the_one_that_looks_like_it() -> None:
    with pytest.raises(Deadlock, match=r"for phase 2 \(parity 0\) of the mbarrier"):
        order("s[t] = t; arrive(&b); wait(&b, 0); arrive(&b);", "wait(&b, 0);")


def test_arrivals_of_several_blocks_at_one_mbarrier() -> None:
    text = (
        PREFIX
        + """__device__ unsigned in_first(const void* p) {
  unsigned a;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(a) : "r"(at(p)));
  return a;
}
__global__ void __cluster_dims__(2) k(int* o) {
  __shared__ int s[64];
  __shared__ u64 b;
  int t = threadIdx.x + 32 * (blockIdx.x % 2);
  if (threadIdx.x == 0) init(&b, 64);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(in_first(&s[t])), "r"(t + (int)blockIdx.x) : "memory");

  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(in_first(&b)) : "memory");
  if (blockIdx.x % 2 == 0) {
    wait(&b, 0);
    for (int i = 0; i < 2; ++i) o[2 * (t + 16 * blockIdx.x) + i] = s[63 - 2 * t - i];
  }
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}"""
    )
    out = np.zeros(128, np.int32)
    run_cuda(text, "k", [out], grid=4)
    first = np.arange(63, -1, -1) + (np.arange(63, -1, -1) >= 32)
    np.testing.assert_array_equal(out, np.concatenate((first, first + 2)))


def run_text(text: str) -> None:
    """One thread, with an mbarrier of one arrival at the start of shared memory."""
    module = parse(
        ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n.reg .b64 s; .reg .b32 r; "
        f".reg .pred p;\n.shared .align 8 .b64 b;\nmov.u32 r, b;\nmbarrier.init.shared.b64 [r], 1;\n{text}\nret;\n}}"
    )
    emulate(module, LaunchSpec("k", (1, 1, 1), (1, 1, 1), ()), {}, arch="sm_90a")


def test_an_arrival_that_may_not_complete_its_phase() -> None:
    with pytest.raises(MbarrierMisuse, match=r"completes phase 0 of the mbarrier .*, which \.noComplete forbids"):
        run_text("mbarrier.arrive.noComplete.shared.b64 s, [r], 1;")


@pytest.mark.parametrize(
    "text",
    [
        "mbarrier.arrive.sys.shared.b64 s, [r];",
        "mbarrier.arrive.global.b64 s, [r];",
        "mbarrier.arrive.expect_tx.shared.b64 s, [r];",
        "mbarrier.arrive.shared::cluster.b64 s, [r];",
        "mbarrier.test_wait.parity.shared.b64 p, [r], 0, 10;",
        "mbarrier.try_wait.parity.shared::cluster.b64 p, [r], 0;",
        "mbarrier.peek.shared.b64 s, [r];",
        "cp.async.mbarrier.arrive.relaxed.shared.b64 [r];",
    ],
)
def test_what_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(UnknownInstruction) as caught:
        run_text(text)
    assert caught.value.location is not None
