"""Timing on a real GPU: known durations come out, short kernels are replayed, ratios are paired."""

import pytest

from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.gpu import driver, loader, timing
from warptile.gpu.timing import Candidate, Schedule
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec

pytestmark = pytest.mark.gpu

SHORT = Schedule("sustained", rounds=3, turn_ms=30.0, warm_up_ms=30.0)

# One thread that waits for the GPU's own nanosecond clock; it ticks about every microsecond at worst.
WAIT = """
__global__ void k(float* d, int ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - start < ns);
  d[0] += 1;
}
"""


@pytest.fixture(scope="module")
def memory():
    with driver.Allocation(1024) as made:
        made.fill(0)
        yield made


@pytest.fixture(scope="module")
def waiting(memory):
    """A function that makes the launch of a kernel of about the given microseconds."""
    kernel = compile_source(Source(WAIT, "k"), driver.device_info().arch, cache=None)
    loaded = loader.load(kernel)

    def launch_of(microseconds):
        spec = LaunchSpec(kernel.entry, (1, 1, 1), (1, 1, 1), (Pointer("D"), Scalar("s32", microseconds * 1000)))
        prepared = loaded.prepare(spec, {"D": memory.address})
        return lambda operand_set, stream: prepared.launch(stream)

    return launch_of


@pytest.mark.parametrize("microseconds", [200, 2000])
def test_a_kernel_of_known_duration_takes_that_long(waiting, microseconds):
    measured = timing.time_launches(waiting(microseconds), schedule=SHORT)
    assert measured.method == "events"
    assert measured.median_ms == pytest.approx(microseconds / 1000, rel=0.1)
    assert measured.launches >= 3 * 30 / (microseconds / 1000) / 1.2
    assert 0 < measured.host_us < 100


def test_a_short_kernel_is_replayed_without_its_launch_gaps(waiting):
    by_graph = timing.time_launches(waiting(0), schedule=SHORT)
    assert by_graph.method == "graph"
    assert by_graph.median_ms < 0.010
    by_events = timing.time_launches(waiting(0), schedule=SHORT, method="events")
    assert by_events.method == "events"
    assert by_graph.median_ms < by_events.median_ms


def test_candidates_of_one_comparison_have_a_paired_ratio(waiting):
    measured = timing.compare({"baseline": Candidate(waiting(400)), "ours": Candidate(waiting(200))}, schedule=SHORT)
    ratio = timing.speed_ratio(measured["ours"], measured["baseline"])
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.median == pytest.approx(2.0, rel=0.1)
    assert len(measured["ours"].rounds_ms) == 3


def test_the_cool_regime_measures_too(waiting):
    schedule = Schedule("cool", rounds=2, turn_ms=5.0, bursts=3, pause_s=0.01, warm_up_ms=0.0)
    measured = timing.time_launches(waiting(300), schedule=schedule)
    assert measured.regime == "cool"
    assert measured.median_ms == pytest.approx(0.3, rel=0.1)


def test_operand_sets_are_all_used(waiting):
    used = set()
    inner = waiting(100)

    def launch(operand_set, stream):
        used.add(operand_set)
        inner(operand_set, stream)

    assert timing.time_launches(launch, sets=7, schedule=SHORT).sets == 7
    assert used == set(range(7))


def test_torchs_stream_can_be_timed():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.float16)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    def launch(operand_set, handle):
        assert handle == stream.cuda_stream
        with torch.cuda.stream(stream):
            torch.matmul(a, a)

    measured = timing.time_launches(launch, schedule=SHORT, stream=stream.cuda_stream, method="events")
    assert 0.005 < measured.median_ms < 5.0
