"""Everything that a launch of one kernel needs, resolved once from a problem, a configuration and a device."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from warptile.dtypes import DType
from warptile.epilogue.cuda import EpilogueSource, number_member
from warptile.epilogue.fused_epilogue import StoredD
from warptile.errors import DTypeError, ShapeError
from warptile.launch.params import Field, Params, Pointer, Scalar
from warptile.launch.spec import Dim3, LaunchSpec
from warptile.launch.workspace import Workspace
from warptile.problem import Operand, Problem
from warptile.rungs.operand_copies import OperandCopy
from warptile.rungs.operand_dequantization import Dequantization
from warptile.rungs.operand_split import Split
from warptile.rungs.repack import Repack

Config = Mapping[str, int]
"""Values of a rung's tunables by name, such as ``{"BM": 128, "BN": 128, "BK": 32}``."""

SCALE_TYPE = {
    "float16": "f32", "float32": "f32", "float32_fast": "f32", "float64": "f64", "int32": "s32",
    "int32_saturating": "s32", "int32_xor": "s32",
}  # fmt: skip
"""PTX type of alpha and beta for each accumulator: as ``Scale`` in kernels/tile/scale.cuh."""


@dataclass(frozen=True)
class View:
    """What a kernel is given in place of the user's problem.

    The operands may be swapped (D^T = B^T A^T, with ``a="B"``, ``b="A"``, m and n exchanged and every layout
    transposed), and an operand may have been repacked (``a="repacked A"``). C and D stay where they are; only their
    layout may be described differently.

    Attributes:
        problem: the problem as the kernel sees it: m, n, k and leading dimensions are its parameters.
        a: whose memory the kernel's A points to.
        b: whose memory the kernel's B points to.
        repacks: operands that the repacking pass rewrites before the GEMM: at most two.
        fused_repacks: operands that the GEMM's own warps repack during its mainloop.
        splits: both operands, where the kernel multiplies their slices: kept ones, and those that the splitting pass
            makes before the GEMM.
        dequantizations: quantized weights, where the dequantizing pass rewrites them before the GEMM.
    """

    problem: Problem
    a: str = "A"
    b: str = "B"
    repacks: tuple[Repack, ...] = ()
    fused_repacks: tuple[Repack, ...] = ()
    splits: tuple[Split, ...] = ()
    dequantizations: tuple[Dequantization, ...] = ()

    @property
    def swapped(self) -> View:
        """The same with operands swapped, of a view without copies for slices or quantized weights."""
        return View(self.problem.swapped, self.b, self.a, self.repacks[::-1], self.fused_repacks[::-1])


@dataclass(frozen=True)
class Instance:
    """The instantiation of a kernel template: ``kernel<Config>``, with a ``Config`` whose members have names.

    Attributes:
        file: path below ``kernels/``, such as ``"wmma/padded.cuh"``.
        kernel: name of the template in namespace ``warptile``.
        types: C++ types of ``Config`` by name, such as ``("TILE", "Tile<128, 128, 32, 64, 32>")``.
        values: its integers and flags by name.
        instructions: names of the instructions whose C++ wrappers are generated for this translation unit.
        defaults: the struct that ``Config`` inherits from, if the kernel has one.
        may_spill: a spill is part of the kernel's lesson, and no build failure.
    """

    file: str
    kernel: str
    types: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, int | bool], ...] = ()
    instructions: tuple[str, ...] = ()
    defaults: str | None = None
    may_spill: bool = False

    @property
    def name_expression(self) -> str:
        """The C++ name of the kernel."""
        return f"warptile::{self.kernel}<warptile::Config>"

    @property
    def text(self) -> str:
        """The C++ definition of ``Config``."""
        lines = [f"    using {name} = {cpp};" for name, cpp in self.types]
        for name, value in self.values:
            kind, shown = ("bool", str(value).lower()) if isinstance(value, bool) else ("int", str(value))
            lines.append(f"    static constexpr {kind} {name} = {shown};")
        head = f"struct Config : {self.defaults} {{" if self.defaults else "struct Config {"
        return "\n".join(["namespace warptile {", head, *lines, "};", "}  // namespace warptile"])


@dataclass(frozen=True)
class KernelSpec:
    """One kernel for one problem on one device: what `Rung.resolve` returns, and all that a launch needs.

    Attributes:
        problem: what is computed.
        config: the rung's tunables.
        view: the problem and the memory that the kernel is given.
        instance: the template and its configuration.
        grid: CTAs in x, y, z.
        block: threads in x, y, z.
        cluster: CTAs of a cluster in x, y, z; the grid is a multiple of it.
        dynamic_shared_bytes: dynamic shared memory of a CTA.
        capability: compute capability times ten that the operands' type and the instruction need.
        params: the struct that the kernel takes; ``alpha`` and ``beta`` are filled in at the launch.
        kernel_workspaces: memory that the kernel needs in addition to operands and repacked operands.
        overlaps_previous: the kernel waits by itself for the launch before it (programmatic dependent launch).
        waits: CTAs wait for each other where they have a workspace that is left zero.
    """

    problem: Problem
    config: Config
    view: View
    instance: Instance
    grid: Dim3
    block: Dim3
    params: Params
    cluster: Dim3 = (1, 1, 1)
    dynamic_shared_bytes: int = 0
    capability: int = 0
    kernel_workspaces: tuple[Workspace, ...] = ()
    overlaps_previous: bool = False
    waits: bool = True

    @cached_property
    def copies(self) -> tuple[OperandCopy, ...]:
        """Copies of operands that a launch before makes. Those without elements (K = 0) are left out."""
        rewritten = tuple(each for each in self.view.splits if not each.kept) or self.view.dequantizations
        return rewritten or tuple(each for each in self.view.repacks if each.moved_bytes)

    @cached_property
    def workspaces(self) -> tuple[Workspace, ...]:
        """Memory that the launches need in addition to the operands: their copies and the kernel's workspaces."""
        view = self.view
        copies: tuple[OperandCopy, ...] = (*view.repacks, *view.fused_repacks, *view.splits, *view.dequantizations)
        targets = (Workspace(name, max(size, 1)) for each in copies for name, size, _ in each.targets)
        return (*targets, *self.kernel_workspaces)

    @property
    def ctas(self) -> int:
        """CTAs of the launch."""
        return math.prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return math.prod(self.block)

    def launch(
        self, entry: str, alpha: float = 1, beta: float = 0, numbers: Mapping[str, float] | None = None
    ) -> LaunchSpec:
        """The launch of the compiled kernel whose lowered symbol is ``entry``.

        Args:
            entry: the symbol.
            alpha: factor of the product.
            beta: factor of C.
            numbers: operands of the epilogue that are numbers.

        Raises:
            ShapeError: D is empty, so that there is nothing to launch, or beta is not zero and there is no C.
            DTypeError: alpha or beta is not a whole number and the accumulator is an integer.
        """
        problem = self.problem
        if problem.m == 0 or problem.n == 0:
            raise ShapeError(f"D is {problem.m} x {problem.n}: there is nothing to launch; return the empty D")
        if beta != 0 and problem.c is None:
            raise ShapeError(f"beta is {beta} and the problem has no C; give c, or beta=0")
        scales = {"alpha": alpha, "beta": beta}
        values = {name: scale_value(name, value, problem.accumulator) for name, value in scales.items()}
        known = {name: each for name, each in values.items() if name in self.params.offsets}
        known |= {number_member(name): each for name, each in (numbers or {}).items()}
        params = self.params.with_values(known)
        return LaunchSpec(
            entry=entry,
            grid=self.grid,
            block=self.block,
            arguments=(params,),
            cluster=self.cluster,
            dynamic_shared_bytes=self.dynamic_shared_bytes,
            overlaps_previous=self.overlaps_previous,
            co_resident=self.waits and any(each.zero for each in self.workspaces),
        )

    def __str__(self) -> str:
        lines = [
            f"kernel     {self.instance.kernel}, {self.instance.file}",
            f"grid       {self.grid} CTAs of {self.block} threads, clusters of {self.cluster}",
            f"shared     {self.dynamic_shared_bytes} bytes, dynamic",
            f"params     {self.params.size_bytes} bytes: "
            + ", ".join(f"{name} at {offset}" for name, offset in self.params.offsets.items()),
        ]
        lines += [f"copy       {each.source} -> {each.target}, {each.moved_bytes} bytes" for each in self.copies]
        lines += [
            f"fused      {each.source} -> {each.target}, {each.moved_bytes} bytes" for each in self.view.fused_repacks
        ]
        lines += [f"workspace  {each.name}: {each.bytes} bytes{', left zero' * each.zero}" for each in self.workspaces]
        return "\n".join(lines)


def element_types(problem: Problem) -> tuple[tuple[str, str], ...]:
    """C++ types of a kernel that takes each of them by itself (kernels/simt/operation.cuh)."""
    return (
        ("ELEMENT", problem.a.dtype.cuda),
        ("ACCUMULATOR", problem.accumulator.cuda),
        ("OUT", problem.d.dtype.cuda),
        *((("EPILOGUE", "Epilogue"),) if problem.epilogue is not None else ()),
    )


def gemm_members(view: View) -> tuple[tuple[str, Field], ...]:
    """Members of ``GemmParams`` (kernels/tile/gemm.cuh), which every kernel takes: first those of the epilogue, if
    there is one; K, lda and ldb in units of A and B, which for types narrower than a byte are bytes."""
    problem = view.problem
    per_unit = max(1, 8 // problem.a.dtype.bits)
    scale = SCALE_TYPE[problem.accumulator.name]

    def leading(operand: Operand | None, per: int = 1) -> Scalar:
        return Scalar("s64", operand.leading_dimension // per if operand is not None else 0)

    return (
        *epilogue_members(problem),
        ("a", Pointer(view.a)),
        ("b", Pointer(view.b)),
        ("c", Pointer("C" if problem.c is not None else None)),
        ("d", Pointer("D")),
        ("m", Scalar("s32", problem.m)),
        ("n", Scalar("s32", problem.n)),
        ("k", Scalar("s32", problem.k // per_unit)),
        ("lda", leading(problem.a, per_unit)),
        ("ldb", leading(problem.b, per_unit)),
        ("ldc", leading(problem.c)),
        ("ldd", leading(problem.d)),
        ("alpha", Scalar(scale, 1)),
        ("beta", Scalar(scale, 0)),
    )


def epilogue_source(seen: Problem) -> EpilogueSource | None:
    """The epilogue of a problem, as a kernel sees it, in CUDA C++; None where there is none."""
    if seen.epilogue is None:
        return None
    return EpilogueSource(
        seen.epilogue, seen.accumulator.name, stored_d(seen), reads_c=seen.c is not None,
        rounded=seen.batch_invariant,
    )  # fmt: skip


def stored_d(seen: Problem) -> StoredD:
    """D in memory, as a kernel sees it."""
    return StoredD(seen.d.dtype, seen.d.major, (seen.m, seen.n))


def epilogue_members(seen: Problem) -> tuple[tuple[str, Field], ...]:
    """Members of the ``Epilogue`` of a problem, as a kernel sees it; none where there is none."""
    source = epilogue_source(seen)
    return () if source is None else source.members()


def with_epilogue(operation: str, seen: Problem) -> str:
    """The C++ type of an operation, with the epilogue of the problem that the kernel sees, if there is one."""
    return operation if seen.epilogue is None else f"WithEpilogue<{operation}, Epilogue>"


def scale_value(name: str, value: float, accumulator: DType) -> float:
    """alpha or beta as the kernel takes it, in the type that follows the accumulator's.

    Raises:
        DTypeError: not a whole number of 32 bits, and the accumulator is an integer.
    """
    scale = SCALE_TYPE[accumulator.name]
    if scale != "s32":
        return ctypes.c_float(value).value if scale == "f32" else float(value)  # beyond float32's range: infinity
    if not math.isfinite(value) or value != int(value) or not -(2**31) <= value < 2**31:
        raise DTypeError(
            f"{name} is {value}; with {accumulator.name} accumulators it must be a whole number of 32 bits, "
            f"such as {name}=2"
        )
    return int(value)
