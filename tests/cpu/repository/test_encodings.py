"""Files of text are UTF-8, whatever the locale is."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warptile

PACKAGE = Path(warptile.__file__).parent


def calls_without_encoding(path):
    """Lines that read or write text in the encoding of the locale."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = {each.arg for each in node.keywords}
        needed = {"read_text": 1, "write_text": 2}.get(name)
        if needed is not None and len(node.args) < needed and "encoding" not in given:
            found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    return found


def test_text_is_read_and_written_with_its_encoding():
    assert [line for path in PACKAGE.rglob("*.py") for line in calls_without_encoding(path)] == []


@pytest.mark.parametrize(
    "words", ["learn quiz 8", "ladder --rung simt-naive -m 4 -n 4 -k 4", "isa mma.m16n8k16.f32.f16"]
)
def test_commands_in_a_locale_without_our_characters(words):
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "warptile.cli.main", *words.split()],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **ascii_alone},
    )
    assert b"Traceback" not in done.stderr
    assert done.stdout.isascii()
    assert done.stdout
