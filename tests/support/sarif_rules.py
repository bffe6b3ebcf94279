"""What the JSON schema of SARIF 2.1.0 (OASIS, errata 01) says of the objects that are written here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse


@dataclass(frozen=True)
class Kind:
    """One object of the schema: the properties that it must have, and what each of those that it may have holds."""

    required: tuple[str, ...]
    properties: Mapping[str, Any]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least


def _uri(value: Any) -> bool:
    return isinstance(value, str) and " " not in value and bool(urlparse(value).path)


def _one_of(*values: str) -> Callable[[Any], bool]:
    return lambda value: value in values


_LEVEL = _one_of("none", "note", "warning", "error")
_MESSAGE = Kind((), {"text": _text, "markdown": _text, "id": _text})
_TEXTS = Kind(("text",), {"text": _text, "markdown": _text})
_PLACE = {
    "artifactLocation": Kind((), {"uri": _uri, "uriBaseId": _text}),
    "region": Kind((), {"startLine": _count(1), "startColumn": _count(1), "snippet": Kind((), {"text": _text})}),
}
_LOCATION = Kind((), {"id": _count(-1), "physicalLocation": Kind((), _PLACE), "message": _MESSAGE})
_RULE = Kind(
    ("id",),
    {
        "id": _text,
        "shortDescription": _TEXTS,
        "fullDescription": _TEXTS,
        "help": _TEXTS,
        "defaultConfiguration": Kind((), {"level": _LEVEL, "enabled": lambda value: isinstance(value, bool)}),
    },
)
_RESULT = Kind(
    ("message",),
    {
        "ruleId": _text,
        "ruleIndex": _count(-1),
        "level": _LEVEL,
        "message": _MESSAGE,
        "occurrenceCount": _count(1),
        "locations": [_LOCATION],
        "relatedLocations": [_LOCATION],
        "properties": lambda value: isinstance(value, dict),
    },
)
_DRIVER = Kind(("name",), {"name": _text, "version": _text, "rules": [_RULE]})
_NOTIFICATION = Kind(("message",), {"message": _MESSAGE, "level": _LEVEL, "locations": [_LOCATION]})
_INVOCATION = Kind(
    ("executionSuccessful",),
    {"executionSuccessful": lambda value: isinstance(value, bool), "toolExecutionNotifications": [_NOTIFICATION]},
)
_RUN = Kind(
    ("tool",),
    {
        "tool": Kind(("driver",), {"driver": _DRIVER}),
        "invocations": [_INVOCATION],
        "columnKind": _one_of("utf16CodeUnits", "unicodeCodePoints"),
        "results": [_RESULT],
    },
)
LOG = Kind(("version", "runs"), {"$schema": _uri, "version": _one_of("2.1.0"), "runs": [_RUN]})
"""The whole file."""


def violations(value: Any, rule: Any = LOG, path: str = "log") -> list[str]:
    """What breaks the rules, each with its path; other properties than those above are taken as misspelt."""
    if isinstance(rule, list):
        if not isinstance(value, list):
            return [f"{path}: no array"]
        return [each for i, item in enumerate(value) for each in violations(item, rule[0], f"{path}[{i}]")]
    if not isinstance(rule, Kind):
        return [] if rule(value) else [f"{path}: {value!r}"]
    if not isinstance(value, dict):
        return [f"{path}: no object"]
    found = [f"{path}: no {name}" for name in rule.required if name not in value]
    for name, item in value.items():
        if name not in rule.properties:
            found.append(f"{path}: unknown {name}")
        else:
            found += violations(item, rule.properties[name], f"{path}.{name}")
    return found
