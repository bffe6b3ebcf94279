"""Reading Nsight Compute's pages: numbers, launches, instructions, lines, and the names they get."""

import json

import msgspec
import pytest

import ncu_stand_in
from warptile.bench.profiling.ncu import ProfileError, launch_each, launched, number, parse_raw, unknown_metrics
from warptile.bench.profiling.profile import (
    METRICS,
    LaunchRequest,
    api_counters,
    by_opcode,
    opcode_of,
    parse_lines,
    parse_sass,
    profile,
    stall_columns,
    stalls_of,
    to_profile,
    unprofiled,
)
from warptile.bench.profiling.source_files import KERNEL_FILES
from warptile.bench.profiling.source_lines import busiest, from_emulator, from_ncu
from warptile.bench.protocol.measurements import Profile
from warptile.bench.protocol.workloads import F16_F32
from warptile.emulator import LineCounters
from warptile.errors import SourceLocation

RAW = (
    "==PROF== Connected to process 7\n"
    '"ID","Process ID","Kernel Name","Block Size","gpu__time_duration.sum","smsp__inst_executed.sum",'
    '"launch__registers_per_thread","sm__warps_active.avg.pct_of_peak_sustained_active",'
    '"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",'
    '"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",'
    '"smsp__average_warps_issue_stalled_selected_per_issue_active.ratio","l1tex__nothing.sum"\n'
    '"","","","","nsecond","inst","register/thread","%","inst","inst","inst",""\n'
    '"0","7","wmma_padded","(256, 1, 1)","1,234,567","8,192","122","24.5","1.0","3.0","1.0","n/a"\n'
    '"1","7","wmma_naive","(128, 1, 1)","2,000","16","40","50","0","0","1","n/a"\n'
)
HEADER = (
    '"Address","Source","# Samples","Instructions Executed","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal",'
    '"L2 Theoretical Sectors Global"\n'
)
SASS = (
    '"Kernel Name","first"\n' + HEADER
    + '"0x10","      @!P0 LDG.E.128 R4, [R2.64]","5","100","-","-","1,600"\n'
    + '"0x20","      STS.128 [R8], R4","1","100","800","400","-"\n'
    + '"0x30","      LDSM.16.M88.4 R4, [R9]","2","50","200","200","-"\n'
    + '"0x40","      LDS R4, [R9+0x4]","2","50","150","50","-"\n'
    + '"0x50","      HMMA.16816.F32 R4, R8, R12, R4","9","400","-","-","-"\n'
    + '"0x60","      @P1 LDGSTS.E.BYPASS.128 [R3], [R6.64]","9","10","40","40","160"\n'
    + '"0x70","      BAR.SYNC.DEFER_BLOCKING 0x0","3","60","-","-","-"\n'
    + '"0x80","      STG.E [R2.64], R4","3","20","-","-","80"\n'
    + '"Kernel Name","second"\n'
    + HEADER.replace("Instructions Executed", "inst_executed")
    + '"0x10","      EXIT","0","7","0","0","0"\n'
)  # fmt: skip
LINES = (
    '"File Path","/somewhere/kernels/wmma/padded.cuh"\n"Function Name","first"\n'
    '"Line No","Source","Address","Source","Instructions Executed","L1 Wavefronts Shared"\n'
    '"30","  if (x == "no") { y, z; }","","","999","999"\n'
    '"","","0x10","      LDS R4, [R9]","8","16"\n'
    '"","","0x20","      IADD3 R1, R1, 1, RZ","8","0"\n'
    '"31","  plain();","","","5","0"\n'
    '"","","0x30","      EXIT","5","0"\n'
    '"File Path","/elsewhere/mma.hpp"\n"Function Name","first"\n'
    '"Line No","Source","Address","Source","Instructions Executed","L1 Wavefronts Shared"\n'
    '"7","deep","","","3","0"\n'
    '"","","0x40","      HMMA.16816.F32 R4, R8, R12, R4","3","0"\n'
)


@pytest.mark.parametrize(
    ("text", "value"), [("1,234.5", 1234.5), ("7", 7.0), ("n/a", None), ("-", None), ("", None), ("(128, 1, 1)", None)]
)
def test_numbers_as_nsight_compute_prints_them(text, value):
    assert number(text) == value


def test_the_raw_page_has_a_row_for_each_launch():
    first, second = parse_raw(RAW)
    assert first["gpu__time_duration.sum"] == 1_234_567
    assert second["smsp__inst_executed.sum"] == 16
    assert "l1tex__nothing.sum" not in first
    assert parse_raw("==ERROR== nothing was profiled\n") == []


@pytest.mark.parametrize(
    ("sass", "opcode"),
    [
        ("      LDS.128 R4, [R2]", "LDS"), ("@!P0 LDG.E R0, [R2]", "LDG"), ("  @UP0 UIADD3 UR4, UR4", "UIADD3"),
        ("@!PT LDS RZ, [RZ]", "LDS"), (".L_x_3:", None), ("", None),
    ],
)  # fmt: skip
def test_the_operation_of_an_instruction(sass, opcode):
    assert opcode_of(sass) == opcode


def test_the_source_page_keeps_launches_and_both_spellings_of_its_columns():
    first, second = parse_sass(SASS)
    assert len(first) == 8
    assert first[1].counters == {
        "samples": 1,
        "instructions": 100,
        "shared_wavefronts": 800,
        "shared_wavefronts_ideal": 400,
    }
    assert second[0].counters == {"instructions": 7}


def test_api_counters_have_their_own_instructions():
    first, _ = parse_sass(SASS)
    metrics = {
        "smsp__inst_executed.sum": 790.0,
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 110.0,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1760.0,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 80.0,
    }
    assert api_counters(metrics, by_opcode(first)) == {
        "warp_instructions": 790.0,
        "global_load_requests": 110.0,
        "tensor_instructions": 400.0,
        "tensor_operand_wavefronts": 0.0,  # HMMA takes registers
        "barriers": 60.0,
        "global_load_sectors": 1600.0 + 160.0,  # LDG and LDGSTS
        "global_store_sectors": 80.0,
        "shared_load_wavefronts": 200.0 + 150.0,  # LDSM and LDS
        "shared_load_wavefronts_ideal": 200.0 + 50.0,
        "shared_load_conflict_ratio": 350.0 / 250.0,
        "shared_store_wavefronts": 800.0,  # STS
        "shared_store_wavefronts_ideal": 400.0,
        "shared_store_conflict_ratio": 2.0,
        "shared_async_copy_wavefronts": 40.0,  # LDGSTS, which is no store
        "shared_async_copy_wavefronts_ideal": 40.0,
        "shared_async_copy_conflict_ratio": 1.0,
    }


def test_profiles_that_count_copies_among_stores_are_read_by_machine_instruction():
    opcodes = {
        "STS": {"shared_wavefronts": 8.0, "shared_wavefronts_ideal": 4.0},
        "LDGSTS": {"shared_wavefronts": 9.0, "shared_wavefronts_ideal": 3.0},
    }
    request = LaunchRequest("mma-final", F16_F32.key(64, 64, 64), {})
    before = msgspec.to_builtins(to_profile(request, {}, []))
    before |= {"by_opcode": opcodes, "counters": {"shared_store_wavefronts": 17.0, "barriers": 5.0}}
    read = msgspec.convert(before, Profile)
    assert read.counters["shared_store_wavefronts"] == 8
    assert read.counters["shared_store_conflict_ratio"] == 2
    assert read.counters["shared_async_copy_wavefronts"] == 9
    assert read.counters["shared_async_copy_conflict_ratio"] == 3
    assert read.counters["barriers"] == 5


def test_products_from_shared_memory_and_tensor_copies():
    opcodes = {"HGMMA": {"instructions": 8.0, "shared_wavefronts": 160.0}, "STSM": {"shared_wavefronts": 4.0}}
    metrics = {
        "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum": 1536.0,
        "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum": 512.0,
        "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum": 0.0,
    }
    found = api_counters(metrics, opcodes)
    assert (found["tensor_instructions"], found["tensor_operand_wavefronts"]) == (8, 160)
    assert (found["shared_load_wavefronts"], found["shared_store_wavefronts"]) == (0, 4)
    assert [found[f"tma_{kind}_sectors"] for kind in ("load", "store", "reduce")] == [1536, 512, 0]


def test_no_shared_memory_is_no_conflict():
    assert api_counters({}, {"EXIT": {"instructions": 1.0}})["shared_load_conflict_ratio"] == 1.0


def test_what_was_not_collected_is_left_out():
    assert api_counters({}, {}) == {}


def test_stalls_are_shares_without_the_warps_that_issued():
    assert stalls_of(parse_raw(RAW)[0]) == {"long_scoreboard": 0.75, "barrier": 0.25}
    assert stalls_of(parse_raw(RAW)[1]) == {}


def test_a_launch_as_a_record_keeps_it():
    request = LaunchRequest("wmma-padded", F16_F32.key(256, 256, 128), {"BM": 128})
    made = to_profile(request, parse_raw(RAW)[0], parse_sass(SASS)[0])
    assert (made.registers, made.occupancy, made.top_stall) == (122, 24.5, "long_scoreboard")
    assert made.by_opcode["HMMA"]["instructions"] == 400
    assert unprofiled(request, "it trapped").failed == "it trapped"


def test_source_lines_add_up_their_instructions_and_not_the_sums_above_them():
    (lines,) = parse_lines(LINES)
    by_place = {(line.file.split("/")[-1], line.line): line for line in lines}
    assert by_place["padded.cuh", 30].counters == {"instructions": 16, "shared_wavefronts": 16}
    assert by_place["padded.cuh", 30].opcodes == {"LDS": 1, "IADD3": 1}
    assert by_place["padded.cuh", 31].counters == {"instructions": 5}
    assert by_place["mma.hpp", 7].counters == {"instructions": 3, "tensor_instructions": 3}


def test_stalls_have_the_names_of_the_metrics_and_no_sample_counts_twice():
    # Headings as Nsight Compute writes them; "selected" is a warp that was issued.
    header = ["Source", "# Samples", "stall_barrier", "stall_long_sb", "stall_selected", "stall_long_sb (Not Issued)"]
    assert stall_columns(header) == {"barrier": 2, "long_scoreboard": 3}


def test_launches_that_failed_keep_the_others_in_order(capsys):
    def launch(request):
        print("==PROF== x")
        if request == "b":
            raise ValueError("no\n  place")

    assert launch_each("abc", launch) == 1
    assert launched(capsys.readouterr().out) == ([0, 2], {1: "ValueError: no place"})
    assert launch_each("ac", launch) == 0


def test_metrics_that_the_gpu_lacks_are_found_in_the_errors():
    asked = ["sm__inst_executed_pipe_tensor_op_imma.sum", "gpu__time_duration.sum"]
    output = (
        "==ERROR== Failed to find metric sm__inst_executed_pipe_tensor_op_imma.sum\n==PROF== gpu__time_duration.sum\n"
    )
    assert unknown_metrics(output, asked) == asked[:1]
    assert unknown_metrics("==ERROR== The application returned an error code (1).\n", asked) == []


def test_files_are_named_within_the_kernels_folder():
    name, text = KERNEL_FILES.name, KERNEL_FILES.text
    assert name("/home/someone/site/warptile/kernels/wmma/padded.cuh") == "wmma/padded.cuh"
    assert name("wmma/padded.cuh") == "wmma/padded.cuh"
    for other in ("/usr/include/other.h", "/home/someone/project/wmma/padded.cuh", "/usr/include/wmma/padded.cuh"):
        assert name(other) == other
    assert text("wmma/padded.cuh", 1) != ""
    assert text("wmma/padded.cuh", 10**6) == text("/usr/include/other.h", 1) == ""


def test_both_sources_give_the_same_table():
    counters = {f"global_{kind}_sectors": 1.0 for kind in ("load", "store")}
    kinds = ("load", "store", "async_copy")
    counters |= {f"shared_{kind}_{what}": 1.0 for kind in kinds for what in ("wavefronts", "wavefronts_ideal")}
    counters |= {f"tma_{kind}_sectors": 2.0 for kind in ("load", "store", "reduce")}
    counters |= {"warp_instructions": 16.0, "tensor_operand_wavefronts": 5.0, "tensor_instructions": 4.0}
    emulated = LineCounters(SourceLocation(9, "wmma/padded.cuh", 30), counters)
    (mine,) = from_emulator([emulated], {("wmma/padded.cuh", 30): 0.75})
    assert (mine.time_share, mine.tma_sectors, mine.tensor_instructions) == (0.75, 6, 4)
    assert (mine.file, mine.line, mine.warp_instructions) == ("wmma/padded.cuh", 30, 16)
    assert (mine.global_sectors, mine.shared_wavefronts, mine.shared_wavefronts_ideal) == (2, 3 + 5, 3 + 5)
    theirs = from_ncu(parse_lines(LINES)[0])
    assert (theirs[0].file, theirs[0].line, theirs[0].warp_instructions, theirs[0].shared_wavefronts) == (
        "wmma/padded.cuh", 30, 16, 16,
    )  # fmt: skip
    assert theirs[0].text == mine.text


def test_an_instruction_without_a_cuda_line_stands_under_its_ptx_line():
    counters = dict.fromkeys(
        [f"{space}_{kind}_{what}" for space, what in (("global", "sectors"), ("shared", "wavefronts"),
         ("shared", "wavefronts_ideal")) for kind in ("load", "store", "async_copy")], 0.0,
    )  # fmt: skip
    counters |= dict.fromkeys([f"tma_{kind}_sectors" for kind in ("load", "store", "reduce")], 0.0)
    counters |= {"warp_instructions": 2.0, "tensor_operand_wavefronts": 0.0, "tensor_instructions": 0.0}
    (line,) = from_emulator([LineCounters(SourceLocation(41), counters)], {("PTX", 41): 0.25})
    assert (line.file, line.line, line.text, line.conflict_ratio) == ("PTX", 41, "", None)
    assert line.time_share == 0.25


def test_the_busiest_lines_come_in_source_order():
    lines = from_ncu(parse_lines(LINES)[0])
    assert [(line.file, line.line) for line in busiest(lines, 2)] == [("wmma/padded.cuh", 30), ("wmma/padded.cuh", 31)]


# --- calling it ---


def calls(folder):
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


@pytest.mark.parametrize("suffix", ["", "z"])
def test_every_request_gets_the_counters_of_its_own_launch(tmp_path, monkeypatch, suffix):
    ncu_stand_in.install(tmp_path, monkeypatch, raw=RAW, sass=SASS, suffix=suffix)
    key = F16_F32.key(64, 64, 64)
    configs = ({"BM": 1}, {}, {"BM": 2})  # the stand-in fails the launch without a configuration
    found = profile([LaunchRequest("wmma-naive", key, config) for config in configs])
    assert [one.failed for one in found.profiles] == [None, "UnsupportedError: no", None]
    assert [one.registers for one in found.profiles] == [122, 0, 40]
    assert found.profiles[0].counters["shared_load_wavefronts"] == 350
    assert found.profiles[2].counters["barriers"] == 0
    assert (found.lines, found.dropped_metrics, found.version) == ((), (), "Version 2025.3.1.0")
    collecting = calls(tmp_path)[0]
    assert collecting[collecting.index("--clock-control") + 1] == "none"


def test_metrics_that_the_gpu_lacks_are_dropped_and_named(tmp_path, monkeypatch):
    lacking = [METRICS[3], METRICS[-1]]
    ncu_stand_in.install(tmp_path, monkeypatch, raw=RAW, sass=SASS, unknown=lacking)
    found = profile([LaunchRequest("wmma-naive", F16_F32.key(64, 64, 64), {"BM": 1})])
    assert found.dropped_metrics == tuple(lacking)
    assert found.profiles[0].failed is None
    asked = [call[call.index("--metrics") + 1].split(",") for call in calls(tmp_path) if "--metrics" in call]
    assert [len(names) for names in asked] == [len(METRICS), len(METRICS) - 2]


def test_lines_are_asked_for_with_our_sources(tmp_path, monkeypatch):
    ncu_stand_in.install(tmp_path, monkeypatch, raw=RAW, sass=SASS, lines=LINES)
    found = profile([LaunchRequest("wmma-padded", F16_F32.key(64, 64, 64), {"BM": 1})], with_lines=True)
    assert next((line.file, line.line) for line in from_ncu(found.lines[0])) == ("wmma/padded.cuh", 30)
    assert "--import-source" in calls(tmp_path)[0]


def test_no_report_is_an_error_with_the_end_of_the_output(tmp_path, monkeypatch):
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\necho ==ERROR== no permission\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ProfileError, match=r"(?s)exit status 1.*no permission"):
        profile([LaunchRequest("wmma-naive", F16_F32.key(64, 64, 64), {"BM": 1})])


def test_a_record_keeps_sums_of_metrics_and_not_their_spread():
    name = "dram__bytes_read"
    request = LaunchRequest("wmma-final", F16_F32.key(64, 64, 64), {})
    given = {f"{name}.{statistic}": 2.0 for statistic in ("avg", "max", "min", "sum")}
    assert to_profile(request, {**given, "launch__grid_size": 4.0, "other": 1.0}, []).metrics == {
        f"{name}.sum": 2.0, "launch__grid_size": 4.0,
    }  # fmt: skip
