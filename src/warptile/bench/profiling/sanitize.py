"""compute-sanitizer over the rungs: accesses out of bounds (memcheck) and races in shared memory (racecheck)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from warptile.bench.profiling.profile import LaunchRequest
from warptile.bench.protocol.measurements import Sanitized
from warptile.errors import NoDeviceError

TOOLS = ("memcheck", "racecheck")
WITHOUT_RACECHECK = ("wgmma",)
"""Families that racecheck cannot judge: it does not follow accesses to shared memory by TMA and wgmma,
nor the transaction barriers that order them. The emulator's race checker does."""

MESSAGES_KEPT = 12

_MARKER = re.compile(r"^warptile-launch (\d+) (ok|.+)$")
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
_FINDING = re.compile(
    r"^=+\s+(Invalid |Misaligned |Error: |Warning: |Program hit |Race reported |Potential |Barrier error|Internal )"
)


def find_sanitizer() -> str:
    """Where compute-sanitizer is.

    Raises:
        NoDeviceError: it is not installed.
    """
    places = [
        shutil.which("compute-sanitizer"),
        *map(str, sorted(Path("/usr/local").glob("cuda*/bin/compute-sanitizer"))),
    ]
    found = next((place for place in places if place), None)
    if found is None:
        raise NoDeviceError(
            "compute-sanitizer is not on the PATH; it comes with the CUDA toolkit. Without it, the emulator checks "
            "bounds, races and writes: warptile ladder --backend emulator"
        )
    return found


def parse(output: str, count: int) -> tuple[dict[int, list[str]], dict[int, str], int | None]:
    """Findings of each launch, failures of launches, and the tool's own count of errors (None without a summary).

    The driver program prints a line after each launch has ended; what the tool says before that line and after the one
    before it belongs to that launch. What comes after the last line is put with the first launch that is missing.
    """
    found: dict[int, list[str]] = {}
    failed: dict[int, str] = {}
    pending: list[str] = []
    total: int | None = None
    ended = -1
    for line in output.splitlines():
        marker = _MARKER.match(line)
        if marker:
            ended = int(marker.group(1))
            if pending:
                found[ended] = pending
                pending = []
            if marker.group(2) != "ok":
                failed[ended] = marker.group(2)
            continue
        summary = _SUMMARY.search(line)
        if summary:
            total = int(summary.group(1) or summary.group(2))
        elif _FINDING.match(line):
            pending.append(line.lstrip("= ").strip())
    if pending:
        found.setdefault(min(ended + 1, count - 1), []).extend(pending)
    return found, failed, total


def run(tool: str, requests: Sequence[LaunchRequest], timeout_s: float = 200.0) -> tuple[Sanitized, ...]:
    """Run all requests under one tool, in one process; one result for each rung.

    A rung whose launch was not reached (an error of one before it ended the process) has ``errors`` None.

    Raises:
        NoDeviceError: compute-sanitizer is not installed.
    """
    command = [find_sanitizer(), "--tool", tool]
    with tempfile.TemporaryDirectory(prefix="warptile-sanitizer-") as name:
        path = Path(name) / "requests.json"
        path.write_bytes(msgspec.json.encode(list(requests)))
        command += [sys.executable, "-m", "warptile.bench.profiling.launch_once", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
            output = done.stdout + "\n" + done.stderr
        except subprocess.TimeoutExpired as error:
            raw = error.stdout or b""
            output = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
    return summarize(tool, requests, output)


def summarize(tool: str, requests: Sequence[LaunchRequest], output: str) -> tuple[Sanitized, ...]:
    """One result for each rung, from the tool's output over all requests."""
    found, failed, total = parse(output, len(requests))
    reached = {int(m.group(1)) for line in output.splitlines() if (m := _MARKER.match(line))}
    results = []
    for rung in dict.fromkeys(request.rung for request in requests):
        mine = [index for index, request in enumerate(requests) if request.rung == rung]
        messages = [message for index in mine for message in found.get(index, [])]
        messages += [f"launch failed: {failed[index]}" for index in mine if index in failed]
        missing = [index for index in mine if index not in reached]
        errors: int | None = len(messages)
        if missing or total is None:
            errors = None
            reason = (
                "no summary from the tool" if not missing else f"{len(missing)} of {len(mine)} launches not reached"
            )
            messages.append(f"{reason}; end of its output: {' '.join(output[-400:].split())}")
        results.append(
            Sanitized(
                rung=rung,
                tool=tool,
                problems=tuple(requests[index].problem for index in mine),
                errors=errors,
                messages=tuple(messages[:MESSAGES_KEPT]),
            )
        )
    if total and not any(found.values()):
        results = [
            msgspec.structs.replace(each, errors=None, messages=(*each.messages, f"the tool counts {total} in all"))
            for each in results
        ]
    return tuple(results)


def latest_runs(runs: Sequence[Sanitized]) -> tuple[Sanitized, ...]:
    """One result for each rung and tool: a finished one rather than one that was not reached."""
    kept: dict[tuple[str, str], Sanitized] = {}
    for each in runs:
        known = kept.get((each.rung, each.tool))
        if known is None or known.errors is None:
            kept[each.rung, each.tool] = each
    return tuple(kept.values())
