"""Probes: one PTX instruction each, between loads and stores of raw words, the same on a GPU and on the emulator.

Thread i reads its input registers from row i of one buffer and writes its output registers to row i of another. A row
is 32-bit words: one for a register of 16 or 32 bits, two for one of 64, lower half first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from warptile.emulator import emulate
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

Words = np.ndarray
"""uint32, of shape (threads, words of a row)."""

PTX_HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


@dataclass(frozen=True)
class Probe:
    """One instruction.

    Attributes:
        name: the instruction as PTX spells it, with what distinguishes it from its like.
        statement: PTX that reads the registers i0, i1, ... and writes o0, o1, ...
        inputs: the type of each input register: b16, b32 or b64.
        outputs: of each output register.
        block: threads of a block.
    """

    name: str
    statement: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    block: int = 256

    @cached_property
    def entry(self) -> str:
        """Name of its kernel."""
        return "probe_" + "".join(c if c.isalnum() else "_" for c in self.name)

    @property
    def input_words(self) -> int:
        """Of a thread."""
        return sum(map(_words, self.inputs))

    @property
    def output_words(self) -> int:
        """Of a thread."""
        return sum(map(_words, self.outputs))

    def body(self, source: str, target: str, percent: str = "%") -> str:
        """PTX of the whole kernel, given the registers that hold the two addresses."""
        lines = [
            ".reg .b32 place, block, size, low, high;",
            ".reg .b64 from, to;",
            *(f".reg .{kind} i{n};" for n, kind in enumerate(self.inputs)),
            *(f".reg .{kind} o{n};" for n, kind in enumerate(self.outputs)),
            f"mov.u32 place, {percent}tid.x;",
            f"mov.u32 block, {percent}ctaid.x;",
            f"mov.u32 size, {percent}ntid.x;",
            "mad.lo.u32 place, block, size, place;",
            f"mul.wide.u32 from, place, {4 * self.input_words};",
            f"add.u64 from, from, {source};",
            f"mul.wide.u32 to, place, {4 * self.output_words};",
            f"add.u64 to, to, {target};",
        ]
        offset = 0
        for n, kind in enumerate(self.inputs):
            if kind == "b64":
                lines += [f"ld.global.b32 low, [from+{offset}];", f"ld.global.b32 high, [from+{offset + 4}];"]
                lines += [f"mov.b64 i{n}, {{low, high}};"]
            elif kind == "b16":
                lines += [f"ld.global.b32 low, [from+{offset}];", f"cvt.u16.u32 i{n}, low;"]
            else:
                lines += [f"ld.global.b32 i{n}, [from+{offset}];"]
            offset += 4 * _words(kind)
        lines.append(self.statement)
        offset = 0
        for n, kind in enumerate(self.outputs):
            if kind == "b64":
                lines += [f"mov.b64 {{low, high}}, o{n};"]
                lines += [f"st.global.b32 [to+{offset}], low;", f"st.global.b32 [to+{offset + 4}], high;"]
            elif kind == "b16":
                lines += [f"cvt.u32.u16 low, o{n};", f"st.global.b32 [to+{offset}], low;"]
            else:
                lines += [f"st.global.b32 [to+{offset}], o{n};"]
            offset += 4 * _words(kind)
        return "\n".join(lines)

    def ptx(self) -> str:
        """A module with the kernel."""
        return (
            f"{PTX_HEADER}.visible .entry {self.entry}(.param .u64 source, .param .u64 target)\n{{\n"
            f".reg .b64 a, b;\nld.param.u64 a, [source];\nld.param.u64 b, [target];\n{self.body('a', 'b')}\nret;\n}}\n"
        )

    def cuda(self) -> str:
        """The same kernel in CUDA C++, all in assembly."""
        lines = "\n".join(f'    "{line}\\n"' for line in self.body("%0", "%1", "%%").splitlines())
        return (
            f'extern "C" __global__ void {self.entry}(const unsigned* source, unsigned* target) {{\n'
            f'  asm volatile("{{\\n"\n{lines}\n    "}}" :: "l"(source), "l"(target) : "memory");\n}}\n'
        )

    def launch(self, threads: int) -> LaunchSpec:
        """One thread for each row."""
        assert threads % self.block == 0, (self.name, threads)
        pointers = (Pointer("source"), Pointer("target"))
        return LaunchSpec(self.entry, (threads // self.block, 1, 1), (self.block, 1, 1), pointers)

    def emulated(self, source: Words, arch: str = "sm_90a") -> Words:
        """What the emulator answers."""
        target = np.zeros((len(source), self.output_words), np.uint32)
        everything = Rows(1, target.size, 4, target.nbytes)
        emulate(
            parse(self.ptx()),
            self.launch(len(source)),
            {"source": np.ascontiguousarray(source), "target": target},
            accesses={"target": Access(writes=True, complete=everything)},
            arch=arch,
            checks=frozenset({"uninitialised", "writes"}),
        )
        return target


def _words(kind: str) -> int:
    return {"b16": 1, "b32": 1, "b64": 2}[kind]


def registers(first: int, count: int, letter: str = "i") -> str:
    """``{i4, i5, i6}``, as a vector operand."""
    return "{" + ", ".join(f"{letter}{n}" for n in range(first, first + count)) + "}"


def translation_unit(probes: Sequence[Probe]) -> str:
    """All kernels in CUDA C++."""
    return "\n".join(probe.cuda() for probe in probes)
