"""GPUVerify's CUDA cases: small kernels with and without data races, in the launches that their first lines name.

python tests/outside/gpuverify.py FOLDER [--json RECORDS]; FOLDER is a checkout of github.com/mc-imperial/gpuverify.

They are compiled without optimization, so that stores that nobody reads stay. Integers are 1, and arrays are full of
zeros. Left out are kernels that need GPUVerify's annotations, headers that CUDA no longer has, pointers in structs, or
functions that nobody defines. GPUVerify reasons about every launch; where its extents are beyond those of CUDA, blocks
have 1024 threads here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from outside_suite import Case, main

ARRAY_BYTES = 1 << 23
MOST_THREADS = 1024

ANNOTATION = re.compile(
    r"\b__(assert|assume|axiom|requires|ensures|invariant|global_invariant|function_wide_invariant|enabled|distinct"
    r"|at_most_one|implies|other|all|no_read|no_write|read|write|write_implies|read_implies|non_temporal_loads_begin"
    r"|add_noovfl_unsigned|same_group)\w*\s*\("
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
SIGNATURE = re.compile(r"__global__\s+void\s+(?:__\w+\([^)]*\)\s*)?(\w+)\s*\((.*?)\)\s*\{", re.S)
ELEMENTS = {"int": np.int32, "unsigned": np.uint32, "float": np.float32, "double": np.float64, "char": np.int8}

LEFT_OUT = (
    "argument_promotion", "cooperative_groups/fail/block_divergence_grid_group",
    "cooperative_groups/fail/divergence_grid_group", "cooperative_groups/fail/divergence_thread_block",
    "cooperative_groups/pass", "curand_tests", "inheritance_struct_simplify", "memcpy/fail_overstep",
    "memcpy/lentoobig", "memcpy/lentoosmall", "memcpy/mismatch", "memcpy/notexactdiv", "memcpy/null_dst",
    "memcpy/null_src", "memcpy/unhandled_varlen", "memcpy_simplification", "memset/null_dst",
    "memset/unhandled_varlen", "memset/unhandled_varval", "misc/fail/miscfail1", "misc/fail/miscfail6",
    "misc/pass/misc5", "misc/pass/misc6", "pointers_in_structs/test2", "pointers_in_structs/test3",
    "pointers_in_structs/test4", "predication", "store_in_byval_function",
)  # fmt: skip

CONSTANT = "constant memory is written"
LOCKSTEP = "GPUVerify was told that warps run in lockstep; PTX does not promise it"
NO_FUNCTION = "a function pointer points to no function"
NOT_HERE = "fails with other arguments, or other constants"
SAME = "all threads write the same values: redundant stores"
UNWRITTEN = "stores what nothing has written"

DIFFERENT: dict[str, tuple[tuple[str, ...], str]] = {
    "function_pointers/basic_argument_fail": (("addresses",), NO_FUNCTION),
    "function_pointers/basic_assignment_fail": ((), NOT_HERE),
    "function_pointers/constant_value": (("addresses",), NO_FUNCTION),
    "function_pointers/pass_struct/call": (("addresses",), NO_FUNCTION),
    "function_pointers/unknown_function": ((), "GPUVerify does not take a pointer to a function of the library"),
    "globalarray/fail": ((), NOT_HERE),
    "loop_unwind": ((), SAME),
    "memcpy/arrayofstruct": (("uninitialised",), UNWRITTEN),
    "memcpy/fail_arrayofstruct": (("uninitialised",), f"{UNWRITTEN}; all threads the same"),
    "misc/fail/miscfail5": (("addresses",), CONSTANT),
    "misc/fail/miscfail7": ((), NOT_HERE),
    "misc/pass/misc3": (("addresses",), CONSTANT),
    "pointertests/test12": (("races",), "every thread writes the shared pointer that others read"),
    "pointertests/test_copy_between_memory_spaces": (("uninitialised",), UNWRITTEN),
    "warpsync/2d": (("races", "uninitialised"), f"{LOCKSTEP}; {UNWRITTEN}"),
    "warpsync/intragroup_scan": (("races", "uninitialised"), f"{LOCKSTEP}; {UNWRITTEN}"),
    "warpsync/scan_warp": (("races",), LOCKSTEP),
    "warpsync/shuffle": (("races",), LOCKSTEP),
}
"""What is true of a case by the PTX ISA, and why, where its first line says something else; of ``xfail`` it is
taken to be a race."""


def cases(folder: Path) -> Iterator[Case]:
    """All launches."""
    root = folder / "testsuite" / "CUDA"
    for path in sorted(root.rglob("kernel.cu")):
        name, text = path.parent.relative_to(root).as_posix(), path.read_text()
        code = COMMENT.sub("", text)
        if name.startswith(LEFT_OUT) or ANNOTATION.search(code):
            continue
        extents = dict(re.findall(r"--(blockDim|gridDim)=(\S+)", text))
        signature = SIGNATURE.search(code)
        if "blockDim" not in extents or signature is None:
            continue
        finds: tuple[str, ...] = () if text.startswith("//pass") else ("races",)
        finds, note = DIFFERENT.get(name, (finds, ""))
        yield Case(
            name, path, None, (launched(extents.get("gridDim", "1")), block(extents["blockDim"])),
            partial(arguments, signature[2]), finds, note=note,
            options={"options": ["-G", *re.findall(r"-D\w+(?:=\w+)?", text)], "include_folders": [path.parent]},
        )  # fmt: skip


def launched(extents: str) -> tuple[int, ...]:
    """``64`` or ``[8,8]``."""
    return tuple(map(int, re.findall(r"\d+", extents)))


def block(extents: str) -> tuple[int, ...]:
    """The same of a block, shortened along its first axes to as many threads as CUDA takes."""
    found = list(launched(extents))
    for axis, extent in enumerate(found):
        others = int(np.prod(found)) // extent
        found[axis] = min(extent, max(1, MOST_THREADS // others))
    return tuple(found)


def arguments(parameters: str) -> Sequence[Any]:
    """Of a kernel with these parameters, as its source says them."""
    return [value(each.strip()) for each in parameters.split(",") if each.strip() not in ("", "void")]


def value(parameter: str) -> Any:
    """An argument for one parameter."""
    kind = re.sub(r"\b(const|volatile|struct|__restrict(__)?)\b", "", parameter)
    if "*" in kind or "[" in kind:
        element = ELEMENTS.get(re.split(r"[\s*]", kind.strip())[0], np.uint8)
        return np.zeros(ARRAY_BYTES // np.dtype(element).itemsize, element)
    return None if kind.split()[0] in ("funcType",) else 1


if __name__ == "__main__":
    main("GPUVerify CUDA cases", cases)
