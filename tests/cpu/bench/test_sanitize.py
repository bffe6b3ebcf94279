"""compute-sanitizer's output, attributed to rungs."""

from warptile.bench.profiling.profile import LaunchRequest
from warptile.bench.profiling.sanitize import parse, summarize
from warptile.bench.protocol.workloads import F16_F32

KEY = F16_F32.key(64, 64, 64)
REQUESTS = [LaunchRequest(rung, KEY, {}) for rung in ("wmma-naive", "wmma-naive", "wmma-shared", "wmma-block")]

CLEAN = (
    "========= COMPUTE-SANITIZER\n" + "".join(f"warptile-launch {i} ok\n" for i in range(4))
    + "========= ERROR SUMMARY: 0 errors\n"
)  # fmt: skip
MEMCHECK = (
    "========= COMPUTE-SANITIZER\nwarptile-launch 0 ok\nwarptile-launch 1 ok\n"
    "========= Invalid __global__ read of size 16 bytes\n"
    "=========     at void warptile::wmma_shared<...>+0x1f0 in padded.cuh:30\n"
    "=========     by thread (3,0,0) in block (1,0,0)\n"
    "========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719)\n"
    "warptile-launch 2 DeviceError: waiting: CUDA_ERROR_LAUNCH_FAILED\n"
    "warptile-launch 3 DeviceError: allocating\n========= ERROR SUMMARY: 2 errors\n"
)
RACECHECK = (
    "========= COMPUTE-SANITIZER\nwarptile-launch 0 ok\nwarptile-launch 1 ok\nwarptile-launch 2 ok\n"
    "========= Error: Race reported between Write access at 0x10 and Read access at 0x20 [64 hazards]\n"
    "warptile-launch 3 ok\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
)


def test_a_clean_run_is_clean_for_every_rung():
    results = summarize("memcheck", REQUESTS, CLEAN)
    assert [(one.rung, one.errors, one.messages) for one in results] == [
        ("wmma-naive", 0, ()), ("wmma-shared", 0, ()), ("wmma-block", 0, ()),
    ]  # fmt: skip
    assert results[0].problems == (KEY, KEY)


def test_findings_belong_to_the_launch_that_had_not_ended():
    found, failed, total = parse(MEMCHECK, 4)
    assert found.keys() == {2}
    assert found[2][0] == "Invalid __global__ read of size 16 bytes"
    assert failed.keys() == {2, 3}
    assert total == 2
    naive, shared, block = summarize("memcheck", REQUESTS, MEMCHECK)
    assert (naive.errors, shared.errors, block.errors) == (0, 3, 1)


def test_a_race_is_an_error_of_its_rung_alone():
    naive, shared, block = summarize("racecheck", REQUESTS, RACECHECK)
    assert (naive.errors, shared.errors, block.errors) == (0, 0, 1)
    assert block.messages[0].startswith("Error: Race reported between Write access")


def test_a_rung_that_was_not_reached_is_not_clean():
    cut = "========= COMPUTE-SANITIZER\nwarptile-launch 0 ok\nwarptile-launch 1 ok\n"
    naive, shared, block = summarize("memcheck", REQUESTS, cut)
    assert [one.errors for one in (naive, shared, block)] == [None, None, None]  # nor without the tool's summary
    assert "1 of 1 launches not reached" in shared.messages[0]
    assert "no summary from the tool" in naive.messages[0]


def test_errors_that_were_not_understood_are_not_lost():
    odd = CLEAN.replace("0 errors", "7 errors")
    assert all(one.errors is None and "counts 7 in all" in one.messages[-1] for one in summarize("x", REQUESTS, odd))
