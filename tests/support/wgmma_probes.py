"""`wgmma.mma_async` as probes: one kernel for each form of the instruction, and inputs that show how it adds and reads.

A case is a block of one warpgroup. It fills shared memory with an image, in which A and B are what the case's
descriptors find, whatever that is: nothing here says how an operand lies in memory. Most images are elements of one
kind (see `tensor_probes`); of kind "places" every element is the number of its chunk of 16 bytes and the other operand
a unit matrix, so that D says which chunk each element came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes import PTX_HEADER, Words
from random_words import stream
from tensor_probes import FLOAT_KINDS, FLOATS, INTEGER_KINDS, INTEGERS, float_codes, integer_codes, packed
from warptile.emulator import emulate
from warptile.isa import mma_sp, wgmma
from warptile.isa.wgmma import Descriptor, Family, GroupShape
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

SEED = 20261121
THREADS = 128
HEADER_WORDS = 16
"""Before a case's registers: four descriptors (a second A and B for two products in a row), scale-d, the image."""

PLACES = "places"
WORDS = "words"
"""Kinds of input beside those of `tensor_probes`: random words."""


@dataclass(frozen=True)
class Case:
    """One block.

    Attributes:
        kind: of its input.
        number: of its input among those of the kind.
        a: where A is, relative to the image; of no effect if A is in registers.
        b: where B is, relative to the part of the image that is B's.
        adds: scale-d.
        further: how many bytes behind A and B those of a second product are.
    """

    kind: str
    number: int
    a: Descriptor
    b: Descriptor
    adds: bool = True
    further: int = 0


@dataclass(frozen=True)
class GroupProbe:
    """One form of the instruction.

    Attributes:
        shape: of the matrices.
        types: of D, A and B.
        cases: its blocks.
        parts: bytes of the image that are A's, and B's behind them; 2048 times something together.
        in_registers: A is.
        transposed: A is MN-major, B is.
        negated: A is negated, B is.
        saturates: ``.satfinite``.
        selector: of the metadata.
        products: how many are made in a row.
        chains: the first case of each kind is multiplied again, with its D as C and the signs of A flipped.
    """

    shape: GroupShape
    types: tuple[str, str, str]
    cases: tuple[Case, ...]
    parts: tuple[int, int] = (2048, 2048)
    in_registers: bool = False
    transposed: tuple[bool, bool] = (False, False)
    negated: tuple[bool, bool] = (False, False)
    saturates: bool = False
    selector: int = 0
    products: int = 1
    chains: bool = False

    @property
    def name(self) -> str:
        """The instruction, and what distinguishes it from its like."""
        told = [self.opcode]
        told += ["of registers"] if self.in_registers else []
        for what, operands in (("MN-major", self.transposed), ("negated", self.negated)):
            told += [f"{letter} {what}" for letter, is_so in zip("AB", operands, strict=True) if is_so]
        told += [f"selector {self.selector}"] if self.selector else []
        told += ["twice"] if self.products > 1 else []
        return " ".join(told)

    @property
    def opcode(self) -> str:
        """As PTX spells it."""
        plain = self.shape.opcode(self.types)
        return plain + ".satfinite" if self.saturates else plain

    @property
    def is_float(self) -> bool:
        """Whether the operands are."""
        return self.types[1] in FLOATS

    @cached_property
    def entry(self) -> str:
        """Name of its kernel."""
        return "probe_" + "".join(c if c.isalnum() else "_" for c in self.name)

    # -- the kernel --------------------------------------------------------------------------------------------

    @property
    def result_registers(self) -> int:
        """Of a lane."""
        return self.shape.registers(self.types[0])

    @property
    def lane_words(self) -> int:
        """Of input: A, metadata, C."""
        return 4 * self.in_registers + self.shape.sparse + self.result_registers

    @property
    def row_words(self) -> int:
        """Of a case's input, without the image."""
        return HEADER_WORDS + THREADS * self.lane_words

    def body(self, source: str, target: str, tile: str, percent: str = "%") -> str:
        """PTX of the kernel, given the registers that hold two addresses and that of shared memory."""
        count = self.result_registers
        d = ", ".join(f"d{i}" for i in range(count))
        lines = [
            ".reg .b32 lane, block, scale, low, meta, a0, a1, a2, a3, x0, x1, x2, x3;",
            ".reg .b64 row, mine, image, at, first, left, right, left2, right2;",
            ".reg .pred adds, yes;",
            *(f".reg .b32 d{i};" for i in range(count)),
            f"mov.u32 lane, {percent}tid.x;",
            f"mov.u32 block, {percent}ctaid.x;",
            f"mul.wide.u32 row, block, {4 * self.row_words};",
            f"add.u64 row, row, {source};",
            "ld.global.b64 image, [row+40];",
            f"add.u64 image, image, {source};",
            "mul.wide.u32 at, lane, 16;",
            "add.u64 image, image, at;",
            f"mad.lo.u32 low, lane, 16, {tile};",
        ]
        for offset in range(0, sum(self.parts), 16 * THREADS):
            lines.append(f"ld.global.v4.b32 {{x0, x1, x2, x3}}, [image+{offset}];")
            lines.append(f"st.shared.v4.b32 [low+{offset}], {{x0, x1, x2, x3}};")
        lines += ["fence.proxy.async.shared::cta;", "bar.sync 0;"]
        lines += [f"shr.u32 low, {tile}, 4;", "cvt.u64.u32 first, low;"]
        for number, name in enumerate(("left", "right", "left2", "right2")):
            lines += [f"ld.global.b64 {name}, [row+{8 * number}];", f"add.u64 {name}, {name}, first;"]
        lines += ["ld.global.b32 scale, [row+32];", "setp.ne.b32 adds, scale, 0;", "setp.eq.b32 yes, scale, scale;"]
        lines += [f"mul.wide.u32 mine, lane, {4 * self.lane_words};", "add.u64 mine, mine, row;"]
        names = [*(["a0", "a1", "a2", "a3"] if self.in_registers else []), *(["meta"] if self.shape.sparse else [])]
        names += [f"d{i}" for i in range(count)]
        for number, name in enumerate(names):
            lines.append(f"ld.global.b32 {name}, [mine+{4 * (HEADER_WORDS + number)}];")
        lines.append("wgmma.fence.sync.aligned;")
        for product in range(self.products):
            left = "{a0, a1, a2, a3}" if self.in_registers else ("left", "left2")[product]
            rest = [f"{{{d}}}", left, ("right", "right2")[product]]
            rest += ["meta", str(self.selector)] if self.shape.sparse else []
            rest.append(("adds", "yes")[product])
            if self.shape.family.negatable:
                rest += ["-1" if negated else "1" for negated in self.negated]
            if self.shape.family.transposable:
                rest += [str(int(each)) for each in self.transposed[self.in_registers :]]
            lines.append(f"{self.opcode} {', '.join(rest)};")
        lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        lines += [f"mul.wide.u32 at, block, {4 * THREADS * count};", f"add.u64 at, at, {target};"]
        lines += [f"mul.wide.u32 mine, lane, {4 * count};", "add.u64 at, at, mine;"]
        lines += [f"st.global.b32 [at+{4 * i}], d{i};" for i in range(count)]
        return "\n".join(lines)

    def ptx(self) -> str:
        """A module with the kernel."""
        return (
            f"{PTX_HEADER}.visible .entry {self.entry}(.param .u64 source, .param .u64 target)\n{{\n"
            f".shared .align 1024 .b8 tile[{sum(self.parts)}];\n.reg .b64 s, t;\n.reg .b32 u;\n"
            f"ld.param.u64 s, [source];\nld.param.u64 t, [target];\nmov.u32 u, tile;\n{self.body('s', 't', 'u')}\n"
            "ret;\n}\n"
        )

    def cuda(self) -> str:
        """The same kernel in CUDA C++, all in assembly."""
        lines = "\n".join(f'    "{line}\\n"' for line in self.body("%0", "%1", "%2", "%%").splitlines())
        return (
            f'extern "C" __global__ void __launch_bounds__({THREADS}) {self.entry}(const unsigned* source, '
            f"unsigned* target) {{\n  __shared__ __align__(1024) unsigned char tile[{sum(self.parts)}];\n"
            f'  asm volatile("{{\\n"\n{lines}\n    "}}" :: "l"(source), "l"(target), '
            '"r"((unsigned)__cvta_generic_to_shared(tile)) : "memory");\n}\n'
        )

    def launch(self, blocks: int) -> LaunchSpec:
        """One block for each case."""
        return LaunchSpec(self.entry, (blocks, 1, 1), (THREADS, 1, 1), (Pointer("source"), Pointer("target")))

    def emulated(self, source: Words, blocks: int) -> Words:
        """What the emulator answers: (blocks, words of D)."""
        target = np.zeros((blocks, THREADS * self.result_registers), np.uint32)
        emulate(
            parse(self.ptx()),
            self.launch(blocks),
            {"source": np.ascontiguousarray(source), "target": target},
            accesses={"target": Access(writes=True, complete=Rows(1, target.size, 4, target.nbytes))},
            arch="sm_90a",
            checks=frozenset({"uninitialised", "writes"}),
        )
        return target

    def answers(self, run: Run) -> Words:
        """D of all cases, then of the chained ones: (cases, words)."""
        found = run(self, self.source(self.cases), len(self.cases))
        if not self.chains:
            return found
        first = [i for i, case in enumerate(self.cases) if case.number == 0]
        cases = [self.cases[i] for i in first]
        return np.concatenate([found, run(self, self.source(cases, found[first]), len(cases))])

    # -- its input ---------------------------------------------------------------------------------------------

    def source(self, cases: Sequence[Case], chained: Words | None = None) -> Words:
        """Input of the cases: their rows, then the images that they name.

        Args:
            cases: some of its cases.
            chained: D of each, to be C now; the signs of A (of integers, all bits) are then flipped.
        """
        images: dict[tuple[str, int], int] = {}
        parts: list[Words] = []
        rows = np.zeros((len(cases), self.row_words), np.uint32)
        size = sum(self.parts)
        for row, case in zip(rows, cases, strict=True):
            key = (case.kind, case.number)
            if key not in images:
                images[key] = len(parts)
                parts.append(self._image(*key, chained=chained is not None))
            further = case.further >> 4
            words = [case.a.encode(), case.b.encode() + (self.parts[0] >> 4)]
            words += [each + further for each in words]
            row[:8] = np.array(words, np.uint64).view(np.uint32)
            row[8] = case.adds
            row[10:12] = np.array([rows.nbytes + images[key] * size], np.uint64).view(np.uint32)
            row[HEADER_WORDS:] = self._registers(*key, chained=chained is not None).ravel()
        if chained is not None:
            lanes = rows[:, HEADER_WORDS:].reshape(len(cases), THREADS, -1)
            lanes[:, :, -self.result_registers :] = chained.reshape(len(cases), THREADS, -1)
        return np.concatenate([rows.ravel(), *parts])

    def _codes(self, kind: str, number: int, role: str, place: str, shape: tuple[int, ...]) -> np.ndarray:
        """Elements of one operand; those in memory and those in registers are different ones."""
        element = dict(zip("cab", self.types, strict=True))[role]
        bits = _bits(element)
        seeds = (SEED, self.name, kind, number, role, place)
        choice = stream(*seeds, "choice", shape=shape)
        if kind == WORDS:
            return choice >> np.uint64(64 - bits)
        if element not in FLOATS:
            return integer_codes(kind, element, choice)
        fraction = stream(*seeds, "fraction", shape=shape)
        return float_codes(kind, element, role, self.types[1], self.types[0], number, choice, fraction)

    def _image(self, kind: str, number: int, *, chained: bool) -> Words:
        found = []
        for role, size in zip("ab", self.parts, strict=True):
            element = self.types[1 + "ab".index(role)]
            bits = _bits(element)
            if kind == PLACES:
                codes = _unit(self.shape.k, size) if role == "b" and not self.in_registers else _numbers(size)
            else:
                codes = self._codes(kind, number, role, "image", (size * 8 // bits,))
            if kind == "cancellation":
                if role == "a":
                    codes[1::2] = codes[0::2] ^ np.uint64(1 << (bits - 1))
                else:
                    nudge = stream(SEED, self.name, number, "nudge", shape=codes.shape) & np.uint64(3)
                    codes = np.repeat(codes[::4], 4) ^ (nudge << np.uint64(FLOATS[element][3]))
            words = packed(codes.reshape(1, -1), bits)[0]
            found.append(words ^ _turn(element) if chained and role == "a" else words)
        return np.concatenate(found)

    def _registers(self, kind: str, number: int, *, chained: bool) -> Words:
        """A, metadata and C of every lane."""
        columns = []
        result, left, _ = self.types
        if self.in_registers:
            bits = _bits(left)
            if kind == PLACES:
                columns.append(_unit_registers(self.shape))
            else:
                codes = self._codes(kind, number, "a", "registers", (THREADS, 4 * 32 // bits))
                if kind == "cancellation":
                    pairs = codes if bits < 32 else codes.T  # neighbours along k: in a register, or in two lanes
                    pairs[:, 1::2] = pairs[:, 0::2] ^ np.uint64(1 << (bits - 1))
                words = packed(codes, bits)
                columns.append(words ^ _turn(left) if chained else words)
        if self.shape.sparse:
            columns.append(self._metadata(kind, number))
        if kind == PLACES:
            columns.append(np.zeros((THREADS, self.result_registers), np.uint32))
        else:
            per_word = 32 // _bits(result)
            codes = self._codes(kind, number, "c", "registers", (THREADS, self.result_registers * per_word))
            columns.append(packed(codes, _bits(result)))
        return np.concatenate(columns, axis=1)

    def _metadata(self, kind: str, number: int) -> Words:
        if kind == PLACES:
            return _unit_metadata(self.shape)
        warp_shape = mma_sp.find(f"m16n8k{self.shape.k}", self.types[1])
        assert warp_shape is not None
        nibbles = np.array(list(warp_shape.positions), np.uint64)
        picked = stream(SEED, self.name, kind, number, "metadata", shape=(THREADS, 8)) >> np.uint64(16)
        return packed(nibbles[picked % np.uint64(len(nibbles))], 4)


Run = Callable[[GroupProbe, Words, int], Words]
"""Runs a probe on the input of so many cases: on the GPU, or `GroupProbe.emulated`."""


def _bits(element: str) -> int:
    return FLOATS[element][0] if element in FLOATS else INTEGERS[element]


def _turn(element: str) -> np.uint32:
    """What turns the signs of a word's elements round; of integers, all bits."""
    if element in INTEGERS:
        return np.uint32(0xFFFFFFFF)
    return np.uint32({8: 0x80808080, 16: 0x80008000, 32: 0x80000000}[FLOATS[element][0]])


def _numbers(size: int) -> np.ndarray:
    """f16 elements that give the number of their chunk."""
    return np.repeat(np.arange(size // 16), 8).astype(np.float16).view(np.uint16).astype(np.uint64)


def _unit(k: int, size: int) -> np.ndarray:
    """A unit matrix of f16 as B, K-major without swizzle: chunks of eight columns, k / 8 of them side by side."""
    matrix = np.zeros((k // 8, k // 8, 8, 8), np.uint64)  # columns / 8, k / 8, column, k
    for i in range(k):
        matrix[i // 8, i // 8, i % 8, i % 8] = 0x3C00
    return np.resize(np.append(matrix.ravel(), np.zeros(size // 2, np.uint64)), size // 2)


UNIT = Descriptor(0, 128, 256)
"""Where `_unit` is, k being 16."""


def _unit_place(shape: GroupShape, k: int) -> tuple[int, int, int]:
    """Lane, register and half where row k of A has its stored element for row k of B."""
    column = k if not shape.sparse else k // 4 * 2 + k % 2
    row, within = k % 16, column % 8
    return 32 * (k // 16) + 4 * (row % 8) + within // 2, row // 8 + 2 * (column // 8), within % 2


def _unit_registers(shape: GroupShape) -> Words:
    """A whose row k is 1 where B has row k, else 0."""
    words = np.zeros((THREADS, 4), np.uint32)
    for k in range(shape.k):
        lane, register, half = _unit_place(shape, k)
        words[lane, register] = 0x3C00 << 16 * half
    return words


def _unit_metadata(shape: GroupShape) -> Words:
    """Of each row k the group of k stores that one's pair."""
    warp_shape = mma_sp.find(f"m16n8k{shape.k}", "f16")
    assert warp_shape is not None
    words = np.full((THREADS, 1), 0x44444444, np.uint32)
    for k in range(shape.k):
        if k % 4 >= 2:
            lane, shift = warp_shape.metadata_place(k % 16, k // 4)
            words[32 * (k // 16) + lane, 0] |= np.uint32(0xE << shift)
    return words


# -- the probes --------------------------------------------------------------------------------------------------------

TILES = 3
"""Of each kind where sums are looked at; the last one is made without C."""


def _kinds(types: tuple[str, str, str]) -> tuple[str, ...]:
    if types[1] not in FLOATS:
        return INTEGER_KINDS
    small = FLOATS[types[1]][1] < 8
    kinds = [kind for kind in FLOAT_KINDS if not (kind == "ignored" and types[1] != "tf32")]
    return (*(kind for kind in kinds if not (kind == "tiny" and small)), WORDS)


def _row_bytes(shape: GroupShape) -> int:
    """Of B along k."""
    return 64 if shape.sparse else 32


def _plain(shape: GroupShape) -> tuple[Descriptor, Descriptor]:
    """A and B in rows that are as long as k is, permuted."""
    along = _row_bytes(shape)
    return Descriptor(0, 16, 256, swizzle=32), Descriptor(0, 16, 8 * along, swizzle=along)


def _sums(shape: GroupShape, types: tuple[str, str, str], kinds: Sequence[str], tiles: int) -> tuple[Case, ...]:
    a, b = _plain(shape)
    return tuple(Case(kind, number, a, b, adds=number != 2) for kind in kinds for number in range(tiles))


def _parts(shape: GroupShape, copies: int = 1) -> tuple[int, int]:
    right = -(-shape.n * _row_bytes(shape) * copies // 2048) * 2048
    return 2048 * copies, right


def _forms() -> Iterator[tuple[GroupShape, tuple[str, str, str], bool, int]]:
    """Every type list: with the shape of eight columns, whether it may saturate, and metadata selectors."""
    for family in wgmma.FAMILIES:
        for is_sparse in (False, True)[: 1 + family.sparse]:
            shape = GroupShape(family, 8, is_sparse)
            for types in wgmma.type_lists(family):
                warp_shape = mma_sp.find(f"m16n8k{shape.k}", types[1]) if is_sparse else None
                yield shape, types, family.saturates, warp_shape.selectors if warp_shape is not None else 1


def _numbers_suite() -> Iterator[GroupProbe]:
    """How sums are made: every type list, every kind of input, A in shared memory."""
    for shape, types, saturates, selectors in _forms():
        for saturate in (False, True)[: 1 + saturates]:
            for selector in range(selectors):
                cases = _sums(shape, types, _kinds(types), TILES)
                yield GroupProbe(
                    shape, types, cases, _parts(shape), saturates=saturate, selector=selector, chains=True
                )  # fmt: skip


def _registers_suite() -> Iterator[GroupProbe]:
    """A in registers, operands negated, and two products in a row."""
    for shape, types, _, selectors in _forms():
        kinds = INTEGER_KINDS if types[1] in INTEGERS else ("normal", "cancellation", "special", "zeros")
        cases = _sums(shape, types, kinds, 1)
        yield GroupProbe(
            shape, types, cases, _parts(shape), in_registers=True, selector=selectors - 1,
            saturates=shape.family.saturates,
        )  # fmt: skip
        if shape.family.negatable and types[1] == types[2]:
            for negated in ((True, False), (False, True), (True, True)):
                for in_registers in (False, True):
                    yield GroupProbe(
                        shape, types, cases, _parts(shape), in_registers=in_registers, negated=negated
                    )  # fmt: skip
        if types[1] == types[2]:
            further = tuple(Case(c.kind, c.number, c.a, c.b, c.adds, further=2048) for c in cases)
            parts = (4096, 2048 + _parts(shape)[1])
            yield GroupProbe(shape, types, further, parts, products=2)


def _widths_suite() -> Iterator[GroupProbe]:
    """More columns: all of n for the first types of each family, one n for each of the others."""
    more = (24, 64, 128, 256)
    for number, (shape, types, _, _) in enumerate(_forms()):
        first = types[1] == types[2] == shape.family.types[0]
        for n in more if first else more[number % 4 : number % 4 + 1]:
            wide = GroupShape(shape.family, n, shape.sparse)
            yield GroupProbe(wide, types, _sums(wide, types, _kinds(types)[:2], 1), _parts(wide))


def _chosen(families: Sequence[Family]) -> Iterator[tuple[GroupShape, tuple[str, str, str]]]:
    for family in families:
        for is_sparse in (False, True)[: 1 + family.sparse]:
            yield GroupShape(family, 64, is_sparse), (family.results[-1], family.types[0], family.types[-1])


def _lying(rows: int, depth: int, swizzle: int, transposed: bool, along: int) -> Descriptor:
    """Somewhere in 16 KiB, as products need it: starts inside permuted rows, steps with gaps."""
    if not transposed:
        if not swizzle:
            return Descriptor(16 * 3, 128 * (rows // 8) + 64, 128, swizzle=0)
        offset = (swizzle - along) // 32 * 32 if swizzle > along else 0
        return Descriptor(1024 + offset, 16, 8 * swizzle + (1024 if swizzle == 128 else 0), swizzle=swizzle)
    if not swizzle:
        return Descriptor(16 * 5, 144 * (depth // 8), 144 if rows == 64 else 160, swizzle=0)
    return Descriptor(1024, 1024 * (depth // 8), 1024, swizzle=swizzle)


def _layouts_suite() -> Iterator[GroupProbe]:
    """Every swizzle of A with every one of B; 16-bit operands also MN-major."""
    for shape, types in _chosen(wgmma.FAMILIES):
        majors = [(False, False)]
        if shape.family.transposable:
            majors += [(False, True), (True, False), (True, True)]
        for transposed in majors:
            cases = []
            for left in wgmma.SWIZZLES:
                for right in wgmma.SWIZZLES:
                    if shape.sparse and right == 32 and not transposed[1]:
                        continue  # among the places
                    a = _lying(64, shape.stored, left, transposed[0], 32)
                    b = _lying(shape.n, shape.k, right, transposed[1], _row_bytes(shape))
                    cases.append(Case(_kinds(types)[0], 0, a, b))
            yield GroupProbe(shape, types, tuple(cases), (20480, 20480), transposed=transposed)
            if transposed[1] and not transposed[0]:
                yield GroupProbe(
                    shape, types, tuple(cases[:4]), (2048, 20480), transposed=transposed, in_registers=True
                )


def _odd(swizzle: int, transposed: bool, along: int) -> Iterator[Descriptor]:
    """Descriptors whose meaning is asked for: any start, steps and base offset."""
    wide = 8 * swizzle or 256
    usual = Descriptor(0, 1024, wide, swizzle=swizzle) if not transposed else Descriptor(0, 1024, 2048, 0, swizzle)
    starts = [16, 32, 64, 112, *range(128, 1024, 128), 1024]
    yield usual
    for start in starts:
        yield Descriptor(start, usual.leading, usual.stride, 0, swizzle)
    for leading in (0, 16, 128, 144, 256, 1040, 2048):
        yield Descriptor(0, leading, usual.stride, 0, swizzle)
    for stride in (0, 16, 128, 144, 256, 512, 640, 1040, 1152):
        yield Descriptor(0, usual.leading, stride, 0, swizzle)
    for offset in range(1, 8):
        yield Descriptor(0, usual.leading, usual.stride, offset, swizzle)
        yield Descriptor(128 * offset, usual.leading, usual.stride, offset, swizzle)
    for start, offset in ((32, 1), (160, 1), (128, 7), (512, 2), (896, 3), (1024, 5)):
        yield Descriptor(start, usual.leading, usual.stride, offset, swizzle)


def _places_suite() -> Iterator[GroupProbe]:
    """Which chunks are read, for any descriptor: B of registers times it, dense and sparse, then A."""
    family = wgmma.FAMILIES[0]
    types = ("f32", "f16", "f16")
    for transposed in (False, True):
        for is_sparse in (False, True):
            shape = GroupShape(family, 32, is_sparse)
            cases = [
                Case(PLACES, 0, Descriptor(0, 0, 0), b, adds=False)
                for swizzle in wgmma.SWIZZLES
                for b in _odd(swizzle, transposed, _row_bytes(shape))
            ]
            yield GroupProbe(
                shape, types, tuple(cases), (0, 16384), in_registers=True, transposed=(False, transposed)
            )  # fmt: skip
        shape = GroupShape(family, 16)
        cases = [
            Case(PLACES, 0, a, UNIT, adds=False) for swizzle in wgmma.SWIZZLES for a in _odd(swizzle, transposed, 32)
        ]
        yield GroupProbe(shape, types, tuple(cases), (16384, 2048), transposed=(transposed, False))
    # The rows of a sparse B are longer than 32 bytes, whatever the type.
    for element in ("tf32", "e4m3", "s8"):
        family = next(each for each in wgmma.FAMILIES if element in each.types)
        shape = GroupShape(family, 32, sparse=True)
        types = (family.results[-1], element, element)
        kind = _kinds(types)[0]
        cases = [
            Case(kind, 0, _plain(shape)[0], Descriptor(start, leading, stride, 0, 32))
            for start in (0, 16, 32, 128)
            for leading, stride in ((16, 256), (1024, 512), (4096, 1024))
        ]
        yield GroupProbe(shape, types, tuple(cases), (2048, 16384))


SUITES = {
    "numbers": tuple(_numbers_suite()),
    "registers": tuple(_registers_suite()),
    "widths": tuple(_widths_suite()),
    "layouts": tuple(_layouts_suite()),
    "places": tuple(_places_suite()),
}
"""All probes, by what they are for."""
