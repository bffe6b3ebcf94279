"""Copies of operands on a GPU: bit for bit, nothing outside touched, and how fast.

    PYTHONPATH=src python tests/gpu/measure_copies.py [FOLDER]

Prints a line for each copy; with a folder, writes ``copies.json`` there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from operand_copy import UNITS, copy, expected, moved, numbers, source_text
from warptile.codegen.nvrtc import compile_source
from warptile.gpu import driver, loader, timing
from warptile.rungs.repack import Repack, launch

GUARD_BYTES = 256
CANARY = 0xA5

SHAPES = ((1, 1, 1), (5, 37, 41), (130, 131, 133), (3, 70001, 70003), (1000, 16, 16), (257, 4095, 4099))
"""Lines, units, stride."""

MEASURED = (
    (4095, 4095, 4095, 2, False), (4096, 4096, 4096, 2, False), (8191, 8191, 8191, 2, False),
    (4095, 4095, 4095, 1, False), (4095, 4095, 4095, 4, False), (16384, 100, 101, 2, False),
    (4096, 4096, 4096, 1, True), (4095, 4095, 4095, 1, True), (8192, 8192, 8192, 1, True),
    (4095, 4095, 4095, 2, True), (4096, 4096, 4096, 4, True), (4095, 4095, 4095, 4, True),
)  # fmt: skip
"""Lines, units, stride, bytes of a unit, transposed."""


def load(*copies: Repack) -> loader.LoadedKernel:
    """The kernel of a launch that makes these copies, on the current GPU."""
    driver.enter()
    return loader.load(compile_source(source_text(*copies), driver.device_info().arch))


def wrong(what: Repack, offset_units: int) -> str | None:
    """What is wrong with one copy whose source lies ``offset_units`` behind a 256-byte boundary, or None."""
    kernel = load(what)
    count = (what.lines - 1) * what.source_stride + what.units
    source = numbers(offset_units + count, what.unit_bytes)
    size = what.target_bytes
    with driver.Allocation.from_array(source) as memory, driver.Allocation(size + 2 * GUARD_BYTES) as target:
        target.fill(CANARY)
        offset_bytes = offset_units * what.unit_bytes
        pointers = {what.source: memory.address, what.target: target.address + GUARD_BYTES}
        kernel.launch(moved(launch([what], kernel.kernel.entry), A=offset_bytes), pointers)
        got = target.to_host(np.empty(size + 2 * GUARD_BYTES, np.uint8))
    kernel.close()
    before, inside, behind = np.split(got, (GUARD_BYTES, GUARD_BYTES + size))
    if not (np.all(before == CANARY) and np.all(behind == CANARY)):
        return "it wrote outside the target"
    lines = inside.view(UNITS[what.unit_bytes]).reshape(what.target_lines, what.target_stride)
    differ = lines[:, : what.target_units] != expected(what, source[offset_units:])
    return f"{int(differ.sum())} units differ, the first at {np.argwhere(differ)[0]}" if differ.any() else None


def measured(*copies: Repack, turn_ms: float = 30.0) -> dict[str, float | str | int | bool]:
    """Time of a launch that makes copies whose operands come from DRAM: sets in turn, more than L2 holds. What is said
    of the operands is said of the first."""
    kernel = load(*copies)
    sizes = {each.source: each.lines * each.source_stride * each.unit_bytes + 16 for each in copies}
    sizes |= {each.target: each.target_bytes for each in copies}
    sets = timing.operand_sets(sum(sizes.values()), driver.device_info().l2_bytes)
    memory = [{name: driver.Allocation(size) for name, size in sizes.items()} for _ in range(sets)]
    spec = launch(copies, kernel.kernel.entry)
    prepared = [kernel.prepare(spec, {name: each.address for name, each in one.items()}) for one in memory]
    schedule = timing.Schedule("sustained", rounds=3, turn_ms=turn_ms, warm_up_ms=turn_ms)
    took = timing.time_launches(lambda index, stream: prepared[index].launch(stream), sets=sets, schedule=schedule)
    for each in (*(allocation for one in memory for allocation in one.values()), kernel):
        each.close()
    what, moved_bytes = copies[0], sum(each.moved_bytes for each in copies)
    return {
        "copies": len(copies), "lines": what.lines, "units": what.units, "stride": what.source_stride,
        "unit_bytes": what.unit_bytes, "transposed": what.transposed, "method": took.method,
        "time_us": took.median_ms * 1e3, "tb_per_s": moved_bytes / took.median_ms / 1e9, "spread": took.spread,
    }  # fmt: skip


def main(folder: str | None) -> int:
    """Check and measure everything; 1 if something was wrong."""
    driver.enter()
    failures = 0
    for transposed in (False, True):
        for unit_bytes in UNITS:
            for shape in SHAPES:
                for offset in (0, 1, 5, 16):
                    answer = wrong(copy(*shape, unit_bytes, transposed, offset), offset)
                    failures += answer is not None
                    if answer is not None:
                        print(
                            f"WRONG {shape} of {unit_bytes} bytes, transposed={transposed}, offset {offset}: {answer}"
                        )
    print(f"{failures} copies were wrong", flush=True)
    found = [measured(copy(*each)) for each in MEASURED]
    found += [measured(copy(*each), copy(*each, name="B")) for each in MEASURED]
    for each in found:
        print(
            f"{each['copies']} times {each['lines']} x {each['units']} of {each['unit_bytes']} bytes, "
            f"stride {each['stride']}, {'transposed' if each['transposed'] else 'straight'}: {each['time_us']:.1f} us, "
            f"{each['tb_per_s']:.2f} TB/s ({each['method']})"
        )
    if folder is not None:
        (Path(folder) / "copies.json").write_text(json.dumps({"wrong": failures, "measured": found}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
