"""Launches replayed with clocks: what they execute is what the emulator executed, and what overlaps shows."""

import json
from itertools import pairwise

import numpy as np
import pytest

from covering import few
from warptile.bench.profiling.replayed import busiest_cluster, replayed
from warptile.cli.main import run
from warptile.emulator.recording import BulkCopy, Recording
from warptile.ladder import plan_for
from warptile.replay import clock_costs
from warptile.replay.busy_time import BusyTime
from warptile.replay.clock_costs import cost_of
from warptile.replay.replayer import Replayer
from warptile.replay.timeline import KINDS, Timeline, TraceSpan, merged, trace_events
from warptile.rungs import RUNGS
from warptile.rungs import rung as rung_named
from warptile.runtime.execute import choose_backend, compiled_ptx
from warptile.runtime.host_operands import host_operands


def planned(name, m=128, n=128, k=128):
    place = choose_backend("emulator")
    return plan_for(rung_named(name), (m, n, k), place, None), place


def recorded(name, *extents):
    plan, place = planned(name, *extents)
    recording = Recording()
    operands = host_operands(plan.problem)
    report = place.emulate(plan, compiled_ptx(plan), operands, 1.0, 0.0, recording)
    return plan, place, recording, operands, report


def loads(timeline):
    return [span for track in timeline.tracks if track == "TMA loads" for span in timeline.of(track)]


def tensor(timeline):
    return timeline.of("tensor core 0")


def overlapping(some, others):
    """Clocks during which both a span of one list and one of the other run."""
    return sum(max(0.0, min(a.end, b.end) - max(a.start, b.start)) for a in some for b in others)


@pytest.mark.parametrize(
    "name", few(["wgmma-store", "simt-shared", "wmma-multistage", "mma-final", "wgmma-stream-k"], 2)
)
def test_a_recording_changes_nothing_and_holds_every_instruction(name):
    plan, place, recording, operands, report = recorded(name)
    plain = host_operands(plan.problem)
    expected = place.emulate(plan, compiled_ptx(plan), plain, 1.0, 0.0)
    np.testing.assert_array_equal(operands["D"].view(np.uint8), plain["D"].view(np.uint8))
    assert report.counters == expected.counters
    assert sum(len(note.warps) for note in recording.notes) == report.counters["warp_instructions"] + sum(
        len(note.warps) for note in recording.notes if recording.program[note.position] is None
    )


@pytest.mark.parametrize("name", few(list(RUNGS), 4))
def test_every_rung_is_replayed_to_its_end(name):
    plan, place = planned(name)
    timeline = replayed(plan, place).timeline
    assert timeline.clocks > 0
    assert {span.kind for span in timeline.spans} <= set(KINDS)
    for track in timeline.tracks:
        spans = timeline.of(track)
        assert all(span.start <= span.end <= timeline.clocks for span in spans)
        if " warp " in track or "tensor core" in track:  # does one thing at a time
            assert all(a.end <= b.start + 1e-6 for a, b in pairwise(spans)), track
    ends = {"warp": 0.0, "tensor core": 0.0}
    for span in timeline.spans:
        ends |= {what: max(end, span.end) for what, end in ends.items() if f"{what} " in span.track}
    assert ends["tensor core"] <= ends["warp"] + 1, "a warp does not end before its products"
    assert all(busy <= timeline.clocks + 1 for busy in timeline.busy.values()), timeline.busy


def test_the_ring_is_filled_ahead_and_its_phases_follow_each_other():
    plan, place = planned("wgmma-specialized", 128, 128, 1024)
    timeline = replayed(plan, place).timeline
    brought = loads(timeline)
    products = tensor(timeline)
    assert brought[0].end <= products[0].start
    # All stages of the ring are asked for before the first product begins.
    stages = plan.config["STAGES"]
    assert len([span for span in brought if span.start < products[0].start]) >= stages
    phases = [track for track in timeline.tracks if "mbarrier" in track]
    assert len(phases) == 2 * stages
    for track in phases:
        numbers = [int(span.text.split()[1]) for span in timeline.of(track)]
        assert numbers == list(range(len(numbers)))
        assert all(a.end == b.start for a, b in pairwise(timeline.of(track)))


def test_double_buffering_overlaps_copies_with_products_and_its_absence_does_not():
    shares = {}
    for name in ("mma-swizzled", "mma-double-buffer"):
        plan, place = planned(name, 128, 128, 512)
        timeline = replayed(plan, place).timeline
        warps = [track for track in timeline.tracks if " warp " in track]
        shares[name] = np.mean([timeline.shares(track).get("tensor", 0) for track in warps]), timeline.clocks
    assert shares["mma-double-buffer"][1] < shares["mma-swizzled"][1]


def test_a_dependent_launch_begins_before_the_one_before_has_ended():
    plan, place = planned("wgmma-dependent-launch")
    found = {}
    recording = Recording()
    place.emulate(plan, compiled_ptx(plan), host_operands(plan.problem), 1.0, 0.0, recording)
    ctas = [(cta,) for cta in busiest_cluster(recording)]
    for overlaps in (False, True):
        timeline = Replayer(recording, ctas, launches=2, overlaps=overlaps, side_by_side=True).run()
        first, second = ([span for span in timeline.spans if span.track.startswith(f"launch {n},")] for n in (0, 1))
        found[overlaps] = max(span.end for span in first), min(span.start for span in second if " warp " in span.track)
        waits = [span for span in second if span.text == "waits for the launch before"]
        assert bool(waits) == overlaps
    assert found[True][1] < found[True][0]
    assert found[False][1] > found[False][0]


def test_multicast_brings_bytes_to_the_mbarriers_of_both_ctas():
    _, _, recording, _, _ = recorded("wgmma-multicast", 256, 256, 128)
    assert recording.cluster_ctas == 2
    to = {effect.phase[0] - effect.warp // recording.warps_per_cta for note in recording.notes
          for effect in note.effects if isinstance(effect, BulkCopy) and effect.phase is not None}  # fmt: skip
    assert to == {-1, 0, 1}


def test_conflicts_cost_clocks():
    """Eight-way conflicts of ldmatrix: the same kernel but for its swizzle takes several times as long."""
    clocks = {name: replayed(*planned(name)).timeline.clocks for name in ("mma-tma", "mma-tma-swizzled")}
    assert clocks["mma-tma"] > 1.5 * clocks["mma-tma-swizzled"]


def test_a_wgmma_of_256_columns_takes_128_clocks_at_its_issue_rate():
    _, _, recording, _, _ = recorded("wgmma-store", 128, 256, 64)
    products = [each for each in recording.program if each is not None and "mma_async" in each.modifiers]
    assert products
    # 64 x 256 x 16 multiply-adds by four tensor cores of 512 a clock; measured in short bursts: 928 TFLOP/s.
    assert cost_of(products[0]).clocks == pytest.approx(128, rel=0.02)
    assert clock_costs.fma_clocks("bfloat16", wgmma=True) == pytest.approx(512, rel=0.02)


def test_trace_events_name_processes_and_threads():
    timeline = Timeline(
        ["warp 0", "unit"],
        [TraceSpan("warp 0", 0, 10, "math", "arithmetic", "a.cu:3", 5), TraceSpan("unit", 4, 6, "copy", "x")],
        {"warp 0": "CTA 0", "unit": "units"}, 10, 2.0,
    )  # fmt: skip
    document = json.loads(json.dumps(trace_events(timeline, {"kernel": "k"})))
    names = {event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"}
    assert names == {"CTA 0", "units"}
    spans = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [(event["ts"], event["dur"], event["args"]["line"]) for event in spans] == [(0, 5, "a.cu:3"), (2, 1, "")]
    assert document["otherData"] == {"kernel": "k"}


def test_spans_that_overlap_are_threads_of_their_own():
    spans = [TraceSpan("loads", *times, "transfer", "x") for times in ((0, 10), (5, 15), (10, 20), (15, 20))]
    timeline = Timeline(["loads", "idle"], spans, {"loads": "units", "idle": "units"}, 20, 1.0)
    events = trace_events(timeline, {})["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == ["loads", "loads", "idle"]
    assert {(event["tid"], event["ts"]) for event in events if event["ph"] == "X"} == {(1, 0), (2, 5), (1, 10), (2, 15)}


def test_each_sm_of_a_cluster_has_its_own_units():
    plan, place = planned("wgmma-multicast", 256, 256, 256)
    timeline = replayed(plan, place).timeline
    groups = {group for group in timeline.groups.values() if group.startswith("units")}
    assert groups == {f"units of SM {number}" for number in range(len(groups))}
    assert len(groups) > 1
    for number in range(len(groups)):
        assert timeline.of(f"SM {number} tensor core 0")
        askers = {span.text.split(" asked for by ")[1] for span in timeline.of(f"SM {number} TMA loads")}
        assert len(askers) > 1, "its own loads, and those that others multicast to it"


def test_work_takes_the_first_gap_that_it_fits_into():
    busy = BusyTime()
    assert [busy.add(*each) for each in ((0, 4), (10, 4), (2, 4), (2, 4), (8, 1), (0, 1))] == [0, 10, 4, 14, 8, 9]
    rng = np.random.default_rng(3)
    taken = []
    busy = BusyTime()
    for not_before, clocks in zip(rng.uniform(0, 500, 400), rng.uniform(0.5, 3, 400), strict=True):
        begin = busy.add(not_before, clocks)
        assert begin >= not_before
        assert all(begin >= end or begin + clocks <= start for start, end in taken)
        taken.append((begin, begin + clocks))


def test_neighbours_of_one_kind_are_one_span():
    spans = [
        TraceSpan("t", 0, 1, "math", "a", "x:1", 2),
        TraceSpan("t", 1, 3, "math", "a", "x:2", 1),
        TraceSpan("t", 5, 6, "math", "a"),
    ]
    assert [(each.start, each.end, each.instructions) for each in merged(spans)] == [(0, 3, 3), (5, 6, 0)]


def test_the_command_writes_a_timeline(tmp_path, capsys):
    path = tmp_path / "trace.json"
    assert run(["profile", "wgmma-specialized", "-k", "256", "--timeline", str(path)]) == 0
    document = json.loads(path.read_bytes())
    assert len(document["traceEvents"]) > 100
    assert document["otherData"]["kernel"] == "wgmma-specialized, 128 x 128 x 256 bfloat16"
    out = capsys.readouterr().out
    assert "by the clock model" in out
    assert "ui.perfetto.dev" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--launches", "2"], "goes with --timeline"), (["--timeline", "/no/such/folder/x.json"], "no/such/folder")],
)
def test_the_command_says_what_is_wrong(arguments, message, capsys):
    assert run(["profile", "mma-final", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_time_of_lines_adds_up_and_conflicts_stand_out():
    shares = {name: replayed(*planned(name)).shares for name in ("mma-vectorized", "mma-swizzled")}
    for found in shares.values():
        assert sum(found.values()) == pytest.approx(1, abs=0.01)
    load = next(place for place in shares["mma-vectorized"] if place[0] == "ptx/ldmatrix.cuh")
    assert shares["mma-vectorized"][load] > 2 * shares["mma-swizzled"][load]


def test_profiles_of_two_rungs_stand_beside_each_other(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["profile", "mma-swizzled", "--compare", "mma-vectorized", "--top", "5", "--backend", "emulator"]) == 0
    out = capsys.readouterr().out
    row = next(line.split() for line in out.splitlines() if line.startswith("shared_load_conflict_ratio"))
    assert float(row[1]) == 1.0
    assert float(row[2]) > 4
    assert "predicted" in out


def test_the_ptx_of_lines_is_printed(capsys):
    assert run(["profile", "mma-swizzled", "--top", "4", "--ptx", "--backend", "emulator"]) == 0
    assert "ldmatrix.sync.aligned.m8n8.x4" in capsys.readouterr().out
