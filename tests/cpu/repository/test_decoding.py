"""Files are decoded as structs by any thread: msgspec alone crashes where two are the first to decode a type."""

import re
import subprocess
import sys

import msgspec
import pytest

from package_sources import PACKAGE
from warptile.decoding import converted, decoded

THREADS = """
import sys, threading
import msgspec
from warptile.decoding import decoded

class Inner(msgspec.Struct):
    a: int
    b: dict[str, int]

KINDS = [
    msgspec.defstruct(f"Outer{number}", [("x", list[msgspec.defstruct("Nested", [("y", dict[str, Inner])])])])
    for number in range(300)
]
BODY = b'{"x": [{"y": {"z": {"a": 1, "b": {}}}}]}'
sys.setswitchinterval(1e-6)
for kind in KINDS:
    ready = threading.Barrier(2)

    def decode():
        ready.wait()
        found.append(decoded(BODY, kind))

    found = []
    threads = [threading.Thread(target=decode) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1] and found[0].x[0].y["z"].a == 1
"""

TYPED = re.compile(r"msgspec\.(?:json\.decode\([^\n]*type=|convert\()")
ONE_THREAD = {"bench", "cli"}
"""Parts in which one thread decodes."""


def test_threads_may_be_the_first_to_decode_a_type():
    run = subprocess.run([sys.executable, "-X", "faulthandler", "-c", THREADS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_what_is_wrong_is_msgspecs_error():
    kind = msgspec.defstruct("Wrong", [("x", int)])
    for _ in range(2):
        with pytest.raises(msgspec.ValidationError):
            decoded(b'{"x": "1"}', kind)
        with pytest.raises(msgspec.ValidationError):
            converted({"x": "1"}, kind)
    assert decoded(b'{"x": 1}', kind) == converted({"x": 1}, kind)


def test_everything_else_decodes_by_it():
    found = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py") if TYPED.search(path.read_text())}
    assert found - ONE_THREAD == {"decoding.py"}
