"""The kernels of tests/wrong_kernels: how each is launched and how it is reported. Run it to write their page:

python tests/support/wrong_kernel_cases.py > docs/planted-bugs.md
"""

from __future__ import annotations

import json
import textwrap

from warptile.errors import (
    AccumulatorOverflow,
    DataRace,
    Deadlock,
    DivergentCollective,
    IllegalAddress,
    IllegalInstruction,
    MbarrierMisuse,
    MisalignedAccess,
    UninitializedRead,
    UnwrittenOutput,
)
from wrong_kernel import FOLDER, Case, WrongResult

SIMT = {"tile": (16, 16), "threads": 256, "element": "float32"}
WARP = {"size": (32, 48, 64), "tile": (16, 16), "threads": 32}
RING = {"size": (64, 48, 96), "tile": (32, 16), "threads": 64}
HOPPER = {
    "size": (64, 32, 256), "tile": (64, 32), "threads": 160, "b_major": "col", "parameters": "A@64x64 B@64x32 D n k",
}  # fmt: skip
TAIL = {**HOPPER, "size": (64, 32, 216)}
FILLED = {**HOPPER, "threads": 128, "parameters": "A B D n k"}
STORING = {**HOPPER, "parameters": "A@64x64 B@64x32 D@32x64/none k"}
HALVES = {**HOPPER, "parameters": "A@64x64 B@64x32 D@16x64/none k"}
CLUSTER = {**HOPPER, "size": (64, 64, 256), "parameters": "A@64x32 B@64x32 D n k"}
STAGE_BYTES = (32 * 16 + 16 * 16) * 2
IN_FLIGHT = "reads shared memory at byte .* while an asynchronous copy into it has not been waited for: it was started"
OVERFLOW = "the result is infinite, in thread .*, although the operands are finite"

CASES = (
    Case("simt_read_before_barrier", DataRace, "write-read race on shared memory, [ab]_tile", (32, 48, 32), **SIMT),
    Case("simt_overwritten_too_early", DataRace, "read-write race on shared memory, [ab]_tile", (32, 48, 32), **SIMT),
    Case("simt_barrier_in_divergent_code", DivergentCollective, "one barrier from two places", (16, 24, 32), **SIMT),
    Case(
        "simt_named_barrier_too_many", Deadlock, "in barrier 1", (4, 64, 40),
        tile=(1, 32), threads=96, element="float32",
    ),
    Case(
        "simt_shuffle_in_divergent_code", DivergentCollective, "at shfl.sync", (4, 6, 52),
        tile=(1, 1), threads=64, element="float32",
    ),
    Case("simt_read_past_k", IllegalAddress, "4 bytes at [AB].*, but [AB] has .* bytes", (20, 30, 13), **SIMT),
    Case(
        "simt_write_past_row_end", IllegalAddress, r"4 bytes at D\+2400, but D has 2400 bytes", (20, 30, 13),
        otherwise=(DataRace,), **SIMT,
    ),
    Case("simt_split_k_without_atomics", DataRace, r"read-write race on D\[0, 0\]", (16, 32, 32), splits=2, **SIMT),
    Case(
        "simt_flag_without_fence", DataRace, "race on workspace.*a flag orders them if it is written behind a fence",
        (16, 32, 32), splits=2, **SIMT,
    ),
    Case(
        "simt_beta_zero_reads_c", IllegalAddress, "which lies in no buffer", (16, 32, 32),
        parameters="A B 0 D m n k beta", **SIMT,
    ),
    # Warps 0 and 1 own columns 0..63 of the CTA's 128: the first element without an owner is D[0, 64], and half of the
    # 128 x 256 elements of two CTAs are missing.
    Case(
        "wmma_half_of_c_unwritten", UnwrittenOutput, r"D\[0, 64\] was never written: 16384 of 32768", (128, 256, 64),
        tile=(128, 128), threads=256,
    ),
    Case("wmma_uninitialised_accumulator", UninitializedRead, "register %f.*, which nothing has written", **WARP),
    Case("wmma_f16_accumulator_overflow", AccumulatorOverflow, OVERFLOW, scale=100.0, **WARP),
    Case(
        "wmma_wrong_major", WrongResult, "the product with B read in the other major order", (32, 64, 48),
        tile=(16, 16), threads=32, b_major="col",
    ),
    Case("wmma_divergent", DivergentCollective, "48 threads, .* at wmma.load", (24, 48, 64), tile=(16, 16), threads=32),
    Case("wmma_patch_without_syncwarp", DataRace, "write-read race on shared memory, patch.*no __syncwarp", **WARP),
    Case(
        "wmma_patch_of_all_warps", DataRace, "write-write race on shared memory, patches", (64, 48, 64),
        tile=(32, 16), threads=64,
    ),
    Case("wmma_misaligned_pitch", MisalignedAccess, "leading dimension 20 elements is not a multiple of 16", **WARP),
    Case("async_no_empty_groups", UninitializedRead, IN_FLIGHT, otherwise=(DataRace,), **RING),
    Case("async_wait_one_too_few", UninitializedRead, IN_FLIGHT, otherwise=(DataRace,), **RING),
    Case("async_no_wait", UninitializedRead, IN_FLIGHT, otherwise=(DataRace,), **RING),
    Case("async_stale_fragment", UninitializedRead, IN_FLIGHT, otherwise=(DataRace,), **RING),
    Case("async_wait_after_barrier", DataRace, "has waited for its copy, but no barrier between", **RING),
    Case("async_stage_overwritten_too_early", DataRace, "stages.*starts a copy into it", **RING),
    Case(
        "async_misaligned_source", MisalignedAccess, "not a multiple of 16 bytes",
        parameters="A+4 B D m n k lda", **RING,
    ),
    Case(
        "async_too_little_shared_memory", IllegalAddress, "accesses bytes 4096.* of 4096 bytes of shared memory",
        shared=(2 * STAGE_BYTES, 3 * STAGE_BYTES), **RING,
    ),
    Case(
        "async_tail_not_filled", UninitializedRead, "read at .* from shared memory at .*, which nothing has written",
        (64, 48, 24), tile=(32, 16), threads=64,
    ),
    Case("mma_divergent", DivergentCollective, "96 threads, .* at mma.sync", **WARP),
    Case("mma_uninitialised_accumulator", UninitializedRead, "uses register .*, which nothing has written", **WARP),
    Case("mma_f16_accumulator_overflow", AccumulatorOverflow, OVERFLOW, scale=100.0, **WARP),
    Case("mma_read_before_barrier", DataRace, "write-read race on shared memory, tiles.*ldmatrix", **WARP),
    Case("mma_misaligned_rows", MisalignedAccess, "ldmatrix.*not a multiple of 16 bytes", **WARP),
    Case(
        "mma_swizzle_on_store_only", WrongResult, "1344 of 1536 elements are wrong; rows 0, 8, 16, 24 are right$",
        **WARP,
    ),
    Case("mma_b_not_transposed", WrongResult, "the product with each 8 x 8 block of B transposed", **WARP),
    Case(
        "mma_quadrants_swapped", WrongResult, "the product with two quarters of each 16 x 16 block of A exchanged",
        **WARP,
    ),
    Case("mma_rows_written_twice", UnwrittenOutput, r"D\[8, 0\] was never written: 768 of 1536", **WARP),
    Case("tma_parity", UninitializedRead, IN_FLIGHT, otherwise=(DataRace, Deadlock), **HOPPER),
    Case("tma_parity_of_tile", UninitializedRead, IN_FLIGHT, otherwise=(DataRace, Deadlock), **HOPPER),
    Case("tma_too_few_bytes", DataRace, "nobody has waited for the copy", otherwise=(UninitializedRead,), **HOPPER),
    Case("tma_too_many_bytes", Deadlock, "lacks 0 of 1 arrivals and 4096 bytes", **HOPPER),
    Case("tma_tail_bytes", Deadlock, "with 7680 bytes more than were expected", **TAIL),
    Case("tma_empty_not_waited", MbarrierMisuse, "waits for 0 of 1 arrivals", otherwise=(DataRace,), **HOPPER),
    Case("tma_empty_count", Deadlock, "lacks 124 of 128 arrivals", **HOPPER),
    Case("tma_every_lane_expects", MbarrierMisuse, "waits for 0 of 1 arrivals", **HOPPER),
    Case("tma_ring_one_ahead", UninitializedRead, IN_FLIGHT, otherwise=(DataRace,), **HOPPER),
    Case("tma_wait_by_one_thread", UninitializedRead, IN_FLIGHT, otherwise=(DataRace,), **HOPPER),
    Case("tma_stale_tail", WrongResult, "2046 of 2048 elements are wrong", **TAIL),
    Case("tma_coordinates_exchanged", WrongResult, "2048 of 2048 elements are wrong", **HOPPER),
    Case("tma_stage_misaligned", MisalignedAccess, "it takes multiples of 128", **HOPPER),
    Case("tma_map_on_stack", IllegalInstruction, "the tensor map lies in local memory", **HOPPER),
    Case("tma_barrier_not_ready", DataRace, r"wrote it with mbarrier\.init", **HOPPER),
    Case("tma_store_no_proxy_fence", DataRace, r"no fence\.proxy\.async stands between", **STORING),
    Case("tma_store_fence_by_one_thread", DataRace, r"no fence\.proxy\.async stands between", **STORING),
    Case("tma_store_buffer_reused", DataRace, "nobody has waited for the copy", **HALVES),
    Case("tma_store_waited_by_another", DataRace, "nobody has waited for the copy", **HALVES),
    Case("tma_store_exit_too_early", IllegalAddress, "ends before this copy has read", **STORING),
    Case("tma_store_no_commit", IllegalAddress, "ends before this copy has read", **STORING),
    Case("wgmma_no_proxy_fence", DataRace, r"no fence\.proxy\.async stands between", **FILLED),
    Case("wgmma_no_fence", DataRace, r"has not executed wgmma\.fence", **HOPPER),
    Case("wgmma_no_commit", DataRace, "has not waited for its product", **HOPPER),
    Case("wgmma_read_before_wait", DataRace, "a register of a product that it has not waited for", **HOPPER),
    Case("wgmma_released_before_wait", DataRace, "has not waited for its product", **HOPPER),
    Case("wgmma_wait_one_too_many", DataRace, "has not waited for its product", **HOPPER),
    Case("wgmma_uninitialised_sums", UninitializedRead, "which nothing has written", **HOPPER),
    Case("wgmma_k_advance", UninitializedRead, IN_FLIGHT, otherwise=(DataRace,), **HOPPER),
    Case(
        "wgmma_swizzle_disagrees", WrongResult, "1791 of 2048 elements are wrong",
        **{**HOPPER, "parameters": "A@64x64/none|A@64x64 B@64x32/none|B@64x32 D n k"},
    ),
    Case("wgmma_wrong_type", WrongResult, "2048 of 2048 elements are wrong", **{**HOPPER, "element": "bfloat16"}),
    Case(
        "wgmma_b_not_transposed", UninitializedRead, IN_FLIGHT, otherwise=(DataRace,),
        **{**HOPPER, "b_major": "row", "parameters": "A@64x64 B@32x64/64B D n k"},
    ),
    Case("wgmma_swizzle_not_aligned", WrongResult, "1280 of 2048 elements are wrong", **FILLED),
    Case("wgmma_offsets_swapped", IllegalAddress, "of 13312 bytes of shared memory", **FILLED),
    Case(
        "wgmma_three_warps", DivergentCollective, "of its warpgroup warp 3 never",
        **{**HOPPER, "size": (48, 32, 256), "parameters": "A@64x64 B@64x32 D m n k"},
    ),
    Case(
        "wgmma_one_of_two_consumers", DataRace, "read-write race on shared memory, stages", otherwise=(Deadlock,),
        **{**HOPPER, "size": (64, 64, 256), "tile": (64, 64), "threads": 288, "parameters": "A@64x64 B@64x64 D n k"},
    ),
    Case(
        "wgmma_wrong_half_of_b", WrongResult, "2048 of 4096 elements are wrong; columns 0 to 31 are right$",
        **{**HOPPER, "size": (64, 64, 256), "tile": (64, 64), "threads": 288, "parameters": "A@64x64 B@64x64 D n k"},
    ),
    Case(
        "wgmma_too_many_registers", Deadlock, "64512 in all",
        **{**HOPPER, "size": (128, 32, 256), "tile": (128, 32), "threads": 384, "parameters": "A@64x128 B@64x32 D n k"},
    ),
    Case(
        "cluster_exit_too_early", DataRace, r"accesses .* of block \([01], 0, 1\), which may have exited by then",
        (16, 32, 32), splits=2, otherwise=(IllegalAddress,), **SIMT,
    ),
    Case(
        "cluster_relaxed_arrival", DataRace, "write-read race on .*half.*no barrier of their cluster between them",
        (16, 32, 32), splits=2, **SIMT,
    ),
    Case("cluster_multicast_mask", Deadlock, "lacks 0 of 1 arrivals and 4096 bytes", **CLUSTER),
    Case("cluster_both_halves_in_one_place", DataRace, "write-write race on .*ring", **CLUSTER),
    Case(
        "cluster_bytes_of_own_copies", DataRace, "nobody has waited for the copy", otherwise=(UninitializedRead,),
        **CLUSTER,
    ),
    Case("cluster_empty_in_one_block", DataRace, "read-write race on .*ring", **CLUSTER),
    Case("cluster_barrier_not_ready", DataRace, "may not have started yet", **CLUSTER),
    Case("cluster_exit_before_arrival", DataRace, "may have exited by then", **CLUSTER),
    Case(
        "launch_copies_before_wait", DataRace, "accesses A and has not executed griddepcontrol.wait",
        overlaps_previous=True, **HOPPER,
    ),
)  # fmt: skip

RECORD_FILE = FOLDER.parent / "data" / "wrong_kernels_h200.json"
RECORD = json.loads(RECORD_FILE.read_text()) if RECORD_FILE.exists() else {"kernels": {}}
"""Recorded by `tests/gpu/wrong_kernels_on_gpu.py`."""

FAMILIES = {
    "simt": "CUDA cores",
    "wmma": "WMMA",
    "async": "Stages of `cp.async`",
    "mma": "`mma.sync`",
    "tma": "Tensor copies and mbarriers",
    "wgmma": "`wgmma`",
    "cluster": "Clusters",
    "launch": "Launches that overlap",
}
INTRODUCTION = """# Kernels with planted bugs

After this page you know which GPU programming bugs the [emulator](emulator.md) reports, what each does on an H200, and
how to fix it.

Each kernel in `tests/wrong_kernels/` holds one bug of a kind seen in practice. A template argument switches it:
`gemm<false>` has the bug, `gemm<true>` is its corrected twin. A test checks both: the emulator must refuse the first
with the error and the source lines named here, and must run the twin without a report, and with the right result, under
three schedules of asynchronous copies. "On a GPU" is what the programming model lets one expect; "On an H200" is what
happened in recorded runs.

`python tests/support/wrong_kernel_cases.py` writes this page from the comments of the kernels.
"""


def page() -> str:
    """The text of docs/planted-bugs.md."""
    parts = [INTRODUCTION]
    for family, title in FAMILIES.items():
        parts.append(f"\n## {title}\n")
        for case in CASES:
            if case.name.partition("_")[0] == family:
                parts += ["\n", _wrapped(f"**{case.name}.** {_sentence(case.header['Bug'])}"), "\n"]
                points = {
                    "On a GPU": case.header["On a GPU"],
                    "On an H200": measured(case.name),
                    "Reported": reported(case),
                    "Fix": case.header["Fix"],
                }
                parts += [_wrapped(f"- {what}: {text}", "  ") for what, text in points.items() if text]
    return "".join(parts)


def measured(name: str) -> str:
    """What the kernel with the bug did on the GPU of the record; empty without a record."""
    found = RECORD["kernels"].get(name, {}).get("wrong", {})
    if "error" in found:
        return f"`{found['error']}`." if found["error"].startswith("CUDA") else f"{found['error'].capitalize()}."
    return f"Wrong result in {found['wrong']} of {RECORD['runs']} runs." if found else ""


def reported(case: Case) -> str:
    """The error in a few words: its class, and the lines that it names."""
    if case.error is WrongResult:
        return f'By comparison with a float64 reference: "{case.message.rstrip("$")}".'
    places = [f"line {' or '.join(map(str, lines))} ({role})" for role, lines in case.reported_lines.items()]
    return f"`{case.error.__name__}`{', naming ' if places else ''}{' and '.join(places)}."


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    print(page(), end="")
