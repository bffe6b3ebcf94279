"""Records made up for tests: their numbers are round, so that tables show where each came from."""

from warptile.bench.feature_suites.feature_row import OURS
from warptile.bench.feature_suites.feature_suites import FEATURE_SUITES
from warptile.bench.protocol.emulator_rates import COMPILED, INTERPRETED, EmulatorTime, EmulatorTimes
from warptile.bench.protocol.environment import describe_processor
from warptile.bench.protocol.feature_times import CallTime, FeatureTimes
from warptile.bench.protocol.host_cost import CHAIN, MATMUL, CallCost, HostCosts
from warptile.bench.protocol.measurements import (
    BaselineTime,
    Check,
    Environment,
    LadderCell,
    Profile,
    RecordedPrediction,
    RecordedResources,
    RegimeTimes,
    Round,
    Samples,
    Sanitized,
    Spread,
    Surveyed,
    TimedConfig,
    Tried,
    Tuning,
    TypeCell,
    UnalignedCell,
)
from warptile.bench.protocol.outside_verdicts import OutsideVerdict
from warptile.bench.protocol.records import (
    CallsRecord,
    CorrectnessRecord,
    EmulatorRecord,
    FeaturesRecord,
    LadderRecord,
    LayoutsRecord,
    OutsideRecord,
    ProfileRecord,
    SanitizerRecord,
    SuitesRecord,
    SurveyRecord,
    TuningRecord,
    TypesRecord,
    UnalignedRecord,
)
from warptile.bench.protocol.row_result import ParticipantRounds, RowResult
from warptile.bench.protocol.suites import SUITES, WEIGHTS
from warptile.bench.protocol.workloads import (
    BF16,
    F16_F16,
    F16_F32,
    F32,
    S4,
    S8,
    groups_of,
    square,
    to_problem,
    type_table_key,
)
from warptile.planning.tuned_table import ProblemClass
from warptile.rungs import RUNGS
from warptile.rungs.wgmma.tile_shapes import TUNABLES
from warptile.rungs.wmma import nine

SAMPLES = Samples(Spread(1500, 1700, 1900), Spread(3200, 3200, 3200), Spread(600, 690, 700), Spread(40, 50, 60), 20)


def environment(**changes):
    given = {"gpu": "NVIDIA H200", "driver": "580.1", "cuda": "13.0", "nvrtc": "13.0.88", "python": "3.12.0"}
    return Environment(**{**given, "baseline_library": "cublasLt 13.1.2", "samples": SAMPLES, **changes})


def about(date="2026-11-20T12:00:00Z", **changes):
    return {"date": date, "git_hash": "0123456789ab", "command": "a command", "environment": environment(**changes)}


def cell(rung="wmma-final", group=F16_F32, size=4096, *, time_ms=0.5, baseline_ms=0.25, **changes):
    rounds = tuple(Round(time_ms * wobble, baseline_ms * wobble) for wobble in (0.9, 1.0, 1.1))
    key = square(RUNGS[rung], group, size)
    given = {
        "config": dict(RUNGS[rung].default_config(to_problem(key))), "rounds": rounds, "launches": 30,
        "baseline_launches": 60, "method": "events",
        "baseline": "heuristic 1", "error_ratio": 0.2, "resources": RecordedResources(128, 65536, 0),
        "predicted": RecordedPrediction(0.4, "tensor", 343.6, "H200"),
    }  # fmt: skip
    return LadderCell(rung=rung, problem=key, **{**given, **changes})


def baseline(group=F16_F32, size=4096, best_ms=0.25):
    return BaselineTime(
        problem=group.key(size, size, size), best_ms=best_ms, first_ms=best_ms * 2, best="heuristic 1", heuristics=8,
        best_index=1, torch_ms=best_ms * 2,
    )  # fmt: skip


def ladder_record(date="2026-11-20T12:00:00Z", names=tuple(RUNGS)):
    """Every rung at 4096 in its groups, each half as fast as the next, and one size more of wmma-final."""
    cells = []
    for position, rung in enumerate(RUNGS.values()):
        if rung.name not in names:
            continue
        for group in groups_of(rung, "sm_90a"):
            cells.append(cell(rung.name, group, time_ms=64.0 / 2**position))
    cells.append(cell("wmma-final", F16_F32, 1024, time_ms=0.02, baseline_ms=0.01))
    cells.append(cell("simt-naive", F32, 16384, rounds=(), note="one launch takes 30.0 s; a cell has 20 s"))
    cells.append(cell("wmma-block", F16_F16, 8192, rounds=(), failed="it wrote outside D"))
    baselines = (baseline(), baseline(size=1024, best_ms=0.01))
    return LadderRecord(regime="sustained", cells=tuple(cells), baselines=baselines, **about(date))


def host_costs(workload, size, layers, *costs):
    """Participants of (name, arrays, microseconds, beside), each in three rounds."""
    made = (
        CallCost(name=name, arrays=arrays, rounds_us=(0.5 * us, us, 2 * us), beside=beside)
        for name, arrays, us, beside in costs
    )
    return HostCosts(workload=workload, size=size, calls=200, layers=layers, costs=tuple(made))


def calls_record():
    calls = host_costs(
        MATMUL, 64, 1, ("torch.matmul", "torch", 12.0, None), ("torch.mm, out", "torch", 10.0, None),
        ("warptile.matmul", "torch", 9.0, "torch.matmul"), ("held plan, out", "torch", 5.0, "torch.mm, out"),
        ("warptile.matmul, NumPy", "NumPy", 40.0, None), ("cupy.matmul", "CuPy", 16.0, None),
        ("warptile.matmul, CuPy", "CuPy", 8.0, "cupy.matmul"),
    )  # fmt: skip
    chain = host_costs(
        CHAIN, 1024, 12, ("torch", "torch", 270.0, None), ("warptile.matmul", "torch", 216.0, "torch"),
        ("torch, graph", "torch", 100.0, None), ("warptile.matmul, graph", "torch", 50.0, "torch, graph"),
    )  # fmt: skip
    return CallsRecord(groups=(calls, chain), **about(baseline_library=None, samples=None))


LDS = {"instructions": 10.0, "shared_wavefronts": 3000.0, "shared_wavefronts_ideal": 2000.0}


def profile(rung="wmma-padded", size=2048, **changes):
    given = {
        "counters": {"shared_load_wavefronts": 3000.0, "shared_load_wavefronts_ideal": 2000.0,
                     "shared_load_conflict_ratio": 1.5, "global_load_bytes": 4.294967296e9,
                    "global_load_sectors": 2**27,
                     "warp_instructions": 123456.0},
        "metrics": {"smsp__inst_executed.sum": 123456.0},
        "by_opcode": {"LDS": LDS, "LDGSTS": {"shared_wavefronts": 300.0, "shared_wavefronts_ideal": 100.0}},
        "stalls": {"long_scoreboard": 0.6, "barrier": 0.4}, "registers": 122, "occupancy": 24.9,
    }  # fmt: skip
    return Profile(rung=rung, problem=F16_F32.key(size, size, size), config={"BM": 128}, **{**given, **changes})


def profile_record():
    free = {"LDS": {**LDS, "shared_wavefronts": LDS["shared_wavefronts_ideal"]}}
    swizzled = profile("mma-swizzled", counters={"shared_load_conflict_ratio": 1.0}, by_opcode=free)
    opcodes = {
        "LDS": LDS,
        "HMMA": {"instructions": 80.0},
        "IMAD": {"instructions": 20.0},
        "LOP3": {"instructions": 10.0},
    }
    buffered = profile("mma-double-buffer", by_opcode=opcodes)
    return ProfileRecord(profiles=(profile(), profile("wmma-naive"), swizzled, buffered), **about())


def type_cell(key, rung="mma-final", **changes):
    times = (
        RegimeTimes("sustained", (1.9, 2.0, 2.1), (1.425, 1.5, 1.575)),
        RegimeTimes("cool", (1.8, 1.8, 1.8), (1.2, 1.2, 1.2)),
    )
    given = {"config": {"BM": 256}, "times": times, "baseline": "heuristic 3", "error_ratio": 0.2, "error": 2.5e-4,
             "drawn_error": 5e-4, "resources": RecordedResources(168, 196608, 0)}  # fmt: skip
    return TypeCell(rung=rung, problem=key, **{**given, **changes})


def types_record():
    alone = {"times": (RegimeTimes("sustained", (40.0,)),), "baseline": None, "no_baseline": "cuBLASLt has no s4"}
    packed = type_cell(type_table_key(S4), error=0.0, drawn_error=None, **alone)
    hopper = [type_cell(type_table_key(BF16, size=size), rung="wgmma-final") for size in (None, 4096)]
    return TypesRecord(cells=(type_cell(type_table_key(F16_F32)), packed, *hopper), **about())


def layouts_record():
    times = (RegimeTimes("sustained", (0.25,), (0.2,)),)
    keys = [F16_F32.key(4096, 4096, 4096, b_major, a_major) for a_major, b_major in F16_F32.majors]
    cells = [type_cell(key, times=times) for key in keys[:3]]
    copied = {"rung": "wgmma-final", "copied_bytes": 2**25, "copies_ms": 0.05, "times": times}
    cells.append(type_cell(S8.key(4096, 4096, 4096), **copied))
    return LayoutsRecord(cells=(*cells, type_cell(keys[3], times=(), failed="it wrote outside D")), **about())


def unaligned_record():
    """One neighbour at three quarters of the aligned speed, one at half, one that is wrong."""

    def made(shape, offset, time_ms, **changes):
        given = {"rounds_ms": (time_ms,) * 3, "neighbour_ms": (0.3,) * 3, "baseline_ms": (0.5,) * 3,
                 "baseline": "heuristic 2", "error_ratio": 0.5, "copied_bytes": 2**27, "copies_ms": 0.1}  # fmt: skip
        return UnalignedCell(
            rung="wgmma-final", problem=BF16.key(*shape, b_major="col"), offset=offset, config={"BM": 128},
            neighbour=BF16.key(4096, 4096, 4096, "col"), **{**given, **changes},
        )  # fmt: skip

    cells = (
        made((4096, 4096, 4096), 1, 0.4),
        made((4096, 4096, 4092), 0, 0.6, copied_bytes=0, copies_ms=None),
        made((4095, 4096, 4096), 0, 0.4, rounds_ms=(), failed="it wrote outside D"),
    )
    return UnalignedRecord(cells=cells, **about())


def row_result(suite, row, ratios=(1.04, *[1.05] * 5, 1.06), **changes):
    """A row measured in as many rounds as ``ratios``, our speeds over the library's; what is beside takes as long."""
    ours = (0.25,) * len(ratios)
    theirs = {"cuBLASLt": tuple(0.25 * ratio for ratio in ratios), "torch": (0.5,) * len(ratios)}
    theirs |= {"beside": ours} if row.neighbour else {}
    turns = tuple(
        ParticipantRounds(who=who, rounds_ms=rounds, launches=30, method="events")
        for who, rounds in {**theirs, "ours": ours}.items()
    )
    given = {"rung": "wgmma-final", "config": {"BM": 128}, "turns": turns, "turn_ms": 400.0, "baseline": "heuristic 4"}
    which = {"problem": row.problem, "offset": row.offset, "max_sms": row.max_sms, "beside": row.neighbour}
    return RowResult(suite=suite, **which, **{**given, **changes})


def suites_record(**changes):
    """Every row of two suites, one of them wrong, and one row of a third."""
    rows = [("squares", row) for row in SUITES["squares"]] + [("ragged", row) for row in SUITES["ragged"]]
    results = [row_result(suite, row) for suite, row in rows] + [row_result("small", SUITES["small"][0])]
    results[0] = row_result(*rows[0], turns=(), failed="it wrote outside D")
    return SuitesRecord(contests=tuple(results), **about(**changes))


def check(rung="wmma-final", **changes):
    given = {"error_ratio": 0.25, "guards_intact": True, "unwritten": 0}
    return Check(rung=rung, problem=F16_F32.key(1000, 1544, 808), config={"BM": 128}, **{**given, **changes})


def correctness_record():
    return CorrectnessRecord(checks=(check(), check(error_ratio=0.5), check("wmma-naive", unwritten=3)), **about())


def sanitizer_record():
    key = F16_F32.key(64, 64, 64)
    runs = (
        Sanitized(rung="wmma-final", tool="memcheck", problems=(key,), errors=0),
        Sanitized(rung="wmma-final", tool="racecheck", problems=(key,), errors=None, messages=("not reached",)),
    )
    return SanitizerRecord(runs=runs, **about())


def tuning_record():
    key = F16_F32.key(4096, 4096, 4096)
    configs = nine(to_problem(key))
    best = Tried(config={**configs[0], "GROUP": 3}, stage=2, time_ms=0.25)
    tried = [Tried(config=dict(config), stage=0, time_ms=0.5 + i / 10) for i, config in enumerate(configs[:-1])]
    failed = Tried(config=dict(configs[-1]), stage=0, time_ms=None, failed="CompileError: it spills")
    unlisted = Tried(config={**configs[0], "GROUP": 5}, stage=0, time_ms=0.75)
    tuning = Tuning(rung="wmma-final", problem=key, tried=(best, *tried, unlisted, failed), candidates=700, illegal=3)
    return TuningRecord(tunings=(tuning,), **about())


def surveyed(problem, rounds_us, cublaslt_us=()):
    """A problem of a survey, with the times of its default configuration for each GROUP."""
    own = RUNGS["wgmma-final"].default_config(problem)
    tried = tuple(
        TimedConfig(tuple({**own, "GROUP": group}[name] for name in TUNABLES), times)
        for group, times in rounds_us.items()
    )
    return Surveyed(
        problem=ProblemClass.of(problem), planned=tried[0].config, tried=tried, cublaslt_us=cublaslt_us,
        failed=("BM=128 BN=256: CompileError: it spills",),
    )  # fmt: skip


def survey_record(**changes):
    small, large = (to_problem(BF16.key(size, size, size, "col")) for size in (512, 4096))
    problems = (
        surveyed(small, {8: (5.0, 6.0, 5.5), 4: (7.0, 7.0, 8.0)}, (6.0, 6.0, 7.0)),
        surveyed(large, {8: (200.0, 210.0, 400.0), 4: (220.0, 221.0, 222.0), 16: (230.0, 240.0, 235.0)}),
    )
    return SurveyRecord(rung="wgmma-final", keys=TUNABLES, surveyed=problems, **{**about(), **changes})


def emulator_record():
    ways = ((INTERPRETED, True, 4), (COMPILED, True, 1), (INTERPRETED, False, 2), (COMPILED, False, 0.25))
    times = tuple(
        EmulatorTime(way=way, checks=checks, rounds_s=(0.1 * factor, 0.11 * factor, 0.2 * factor))
        for way, checks, factor in ways
    )
    group = EmulatorTimes(kernel="softmax", thread_instructions=22_000_000, times=times)
    about_it = {**about(), "environment": describe_processor()}
    return EmulatorRecord(groups=(group,), **about_it)


def outside_record():
    def verdict(case, **given):
        return OutsideVerdict(case=case, seconds=2.5, warp_instructions=100, **given)

    groups = (
        verdict("clean", result=True, agrees=True),
        verdict("caught", expected=("races",), found=("races",), agrees=True),
        verdict("missed", expected=("races",), agrees=False),
        verdict("strange", refused="UnknownInstruction: tcgen05.mma", agrees=False),
    )
    about_it = {**about(), "environment": describe_processor()}
    return OutsideRecord(suite="Others' kernels", revision="0123456789abcdef", groups=groups, **about_it)


def feature_times(suite, row, us=100.0, ratio=2.0):
    """A row in three rounds, the same ratio to everything that its classes are compared with."""
    others = dict.fromkeys(suite.goals[name].of for name in row.classes)
    times = [CallTime(name=OURS, rounds_us=(us, 1.1 * us, us), config="wgmma-final BM=128", sets=2, error=0.5)]
    times += [
        CallTime(name=name, rounds_us=(ratio * us, ratio * 1.1 * us, ratio * us)) for name in others if name != WEIGHTS
    ]
    return FeatureTimes(row=row.name, times=tuple(times), read_bytes=row.read_bytes)


def features_record(name="scales", rows=None, **changes):
    suite = FEATURE_SUITES[name]
    found = tuple(feature_times(suite, row) for row in suite.rows) if rows is None else tuple(rows)
    return FeaturesRecord(suite=name, rows=found, **about(**changes))


def all_records():
    return (
        ladder_record(), profile_record(), correctness_record(), sanitizer_record(), tuning_record(), types_record(),
        layouts_record(), unaligned_record(), suites_record(), survey_record(), emulator_record(),
        outside_record(),
        features_record(),
    )  # fmt: skip


UNMEASURED = ("wgmma-split",)
"""Rungs that no record has yet."""
