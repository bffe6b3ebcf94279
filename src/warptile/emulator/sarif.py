"""Findings as SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format"), which CI services show beside code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import warptile
from warptile.emulator.findings import CHECKS, SEVERITIES, EmulationFinding, Severity
from warptile.errors import SourceLocation

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

LEVELS: Mapping[Severity, str] = {"error": "error", "model": "warning", "warning": "note"}
"""The level of each severity (section 3.27.10)."""

Place = Callable[[SourceLocation], tuple[str, int, str]]
"""The URI of the file of an instruction, its line or 0 where none is known, and the text of that line or nothing."""

COMPILE_ERROR = "compile-error"
"""The rule of what the compiler refuses, beside those of the emulator's checks."""


@dataclass(frozen=True)
class Refusal:
    """Why a kernel was not run.

    Attributes:
        message: what is wrong.
        uri: of the file, or nothing where no file is to blame.
        line, column: from 1 on, 0 where none is known.
        text: of the line, or nothing.
        of_source: the source is wrong, which is a result; otherwise warptile cannot run it, which is a notification.
    """

    message: str
    uri: str
    line: int
    column: int
    text: str
    of_source: bool


def sarif(
    findings: Sequence[EmulationFinding], place: Place, *, finished: bool, refusals: Sequence[Refusal] = ()
) -> dict[str, Any]:
    """A SARIF log of one run.

    Args:
        findings: to be listed; a rule is given for every check, whether it found something or not.
        place: where each instruction stands.
        finished: whether the kernel ran to its end.
        refusals: why it did not run at all.
    """
    rules = list(CHECKS)
    driver = {
        "name": "warptile emulate",
        "version": warptile.__version__,
        "rules": [
            {
                "id": check.name,
                "shortDescription": {"text": check.what},
                "fullDescription": {"text": f"{check.what}. Severity {check.severity}: {SEVERITIES[check.severity]}."},
                "help": {"text": f"Fix: {check.fix}."},
                "defaultConfiguration": {"level": LEVELS[check.severity], "enabled": check.default or check.always},
            }
            for check in CHECKS.values()
        ]
        + [
            {
                "id": COMPILE_ERROR,
                "shortDescription": {"text": "source that the compiler refuses"},
                "fullDescription": {"text": "Source that NVRTC does not compile, or PTX that cannot be read."},
                "help": {"text": "Fix: see the message."},
                "defaultConfiguration": {"level": "error", "enabled": True},
            }
        ],
    }
    invocation: dict[str, Any] = {"executionSuccessful": finished}
    if notifications := [_notification(each) for each in refusals if not each.of_source]:
        invocation["toolExecutionNotifications"] = notifications
    results = [_result(each, rules.index(each.check), place) for each in findings]
    results += [_compile_error(each, len(rules)) for each in refusals if each.of_source]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "invocations": [invocation],
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }


def _result(finding: EmulationFinding, rule: int, place: Place) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.check,
        "ruleIndex": rule,
        "level": LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. Fix: {finding.fix}."},
        "occurrenceCount": finding.count,
        "properties": {
            "severity": finding.severity,
            "error": finding.kind,
            "missing": finding.missing,
            "fix": finding.fix,
            "schedule": finding.schedule,
        },
    }
    if finding.location is not None:
        result["locations"] = [_location(finding.location, place)]
    related = [] if finding.first is None else [(finding.first, "the access before it")]
    if finding.location is not None:
        calls = finding.location.callers
        related += [(SourceLocation(0, file, line), "the call that was inlined") for file, line in calls]
    if related:
        result["relatedLocations"] = [
            {"id": number, "message": {"text": text}, **_location(where, place)}
            for number, (where, text) in enumerate(related)
        ]
    return result


def _compile_error(refusal: Refusal, rule: int) -> dict[str, Any]:
    return {"ruleId": COMPILE_ERROR, "ruleIndex": rule, "level": "error", **_said(refusal)}


def _notification(refusal: Refusal) -> dict[str, Any]:
    return {"level": "error", **_said(refusal)}


def _said(refusal: Refusal) -> dict[str, Any]:
    said: dict[str, Any] = {"message": {"text": refusal.message}}
    if refusal.uri:
        said["locations"] = [_physical(refusal.uri, refusal.line, refusal.column, refusal.text)]
    return said


def _location(where: SourceLocation, place: Place) -> dict[str, Any]:
    uri, line, text = place(where)
    return _physical(uri, line, 0, text)


def _physical(uri: str, line: int, column: int, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if line:
        start = {"startLine": line, **({"startColumn": column} if column else {})}
        found["region"] = {**start, **({"snippet": {"text": text}} if text else {})}
    return {"physicalLocation": found}
