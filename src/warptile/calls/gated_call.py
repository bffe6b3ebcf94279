"""Calls whose epilogue makes one column of D of two columns of the product (`warptile.halves`, `warptile.pairs`).

Columns j and j + N / 2 of ``b``, and columns 2 j and 2 j + 1, are views of it. So two GEMMs compute D: the first one
the product with the second columns, not rounded below float32; the second one has that as an operand of its epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from warptile.arrays import array_view
from warptile.arrays.options import beta_of, element_named
from warptile.arrays.packed_operands import stored
from warptile.arrays.sparse import SparseMatrix
from warptile.calls.matmul_plan import GemmPlan, MatmulPlan
from warptile.calls.plan_fit import check_addend, check_operands
from warptile.epilogue.column_pairs import HALVES, SECOND_PRODUCT, first_columns, second_columns
from warptile.epilogue.epilogue_program import ColumnPairs, Program
from warptile.epilogue.program_text import replayed
from warptile.epilogue.tracing import trace
from warptile.errors import ShapeError, UnsupportedError

MOST_KNOWN = 256
"""Epilogues that are remembered."""


@dataclass(frozen=True)
class GatedEpilogue:
    """An epilogue of two columns of the product.

    Attributes:
        paired: which columns, and which operands have N of them.
        function: the epilogue of N / 2 columns.
        names: its operands, of which the second product is one unless nothing is made of it.
        given: the caller's operands.
    """

    paired: ColumnPairs
    function: Callable[..., Any]
    names: tuple[str, ...]
    given: tuple[str, ...] = ()

    @staticmethod
    def of(paired: ColumnPairs, program: Program) -> GatedEpilogue:
        """The epilogue that was traced as ``program``."""
        made = {SECOND_PRODUCT}
        for name in paired.operands:
            made |= {first_columns(name), second_columns(name)}
        given = (*paired.operands, *(name for name in program.operands if name not in made))
        return GatedEpilogue(paired, replayed(program), program.operands, given)

    def __reduce__(self) -> tuple[Any, ...]:
        return GatedEpilogue.of, (self.paired, self.function.warptile_program)  # type: ignore[attr-defined]

    def operands(self, given: Mapping[str, Any], n: int, second: Any) -> dict[str, Any]:
        """The operands of ``function``.

        Args:
            given: the caller's, by name.
            n: columns of the product.
            second: the second product; None where it is not read.

        Raises:
            ShapeError: an operand that has neither one column nor N.
        """
        found = {name: each for name, each in given.items() if name not in self.paired.operands}
        for name in self.paired.operands:
            found[first_columns(name)] = columns(given[name], name, self.paired.kind, n, second=False)
            found[second_columns(name)] = columns(given[name], name, self.paired.kind, n, second=True)
        return {name: each for name, each in (found | {SECOND_PRODUCT: second}).items() if name in self.names}

    @property
    def reads_second(self) -> bool:
        """Whether the second product is an operand."""
        return SECOND_PRODUCT in self.names


_known: dict[Hashable, GatedEpilogue | None] = {}


def gated_epilogue(
    epilogue: Callable[..., Any], known: Hashable | None, operands: Mapping[str, Any]
) -> GatedEpilogue | None:
    """An epilogue as one of two columns of the product; None where it is of one.

    Args:
        epilogue: as the caller gave it.
        known: `warptile.epilogue.identity.identity` of it: what has one is traced once.
        operands: the caller's, by name.

    Raises:
        EpilogueError: as `warptile.epilogue.tracing.trace`.
    """
    key = None if known is None else (known, *operands)
    if key is not None and key in _known:
        return _known[key]
    program = trace(epilogue, operands)
    found = None if program.paired is None else GatedEpilogue.of(program.paired, program)
    if key is not None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = found
    return found


def remembered_gate(known: Hashable | None, operands: Mapping[str, Any]) -> GatedEpilogue | None:
    """What `gated_epilogue` made before of an epilogue with these names of operands; None where it made nothing."""
    return None if known is None else _known.get((known, *operands))


def columns(array: Any, name: str, kind: str, n: int, *, second: bool) -> Any:
    """The first, or the second, column of each pair of an array's N columns; what has one column, or none, itself.

    Raises:
        ShapeError: another number of columns.
    """
    shape = tuple(getattr(array, "shape", ()))
    if not shape or shape[-1] == 1 != n:
        return array
    if shape[-1] != n:
        raise ShapeError(f"{name}: got shape {shape}; before {kind}, it broadcasts to the product of {n} columns")
    half = n // 2
    if kind == HALVES:
        return array[..., half:] if second else array[..., :half]
    return array[..., 1::2] if second else array[..., 0::2]


def product_columns(b: Any, kind: str) -> int:
    """N of ``b``, checked to be even.

    Raises:
        ShapeError: it is odd, or ``b`` is 1-D.
        UnsupportedError: ``b`` has no columns that can be taken, since it is packed.
    """
    if not hasattr(b, "__getitem__") and hasattr(b, "packed"):
        raise UnsupportedError(
            f"b: got a {type(b).__name__}, which is packed; {kind} takes columns of b: pack the gate's and "
            "those of what it gates apart, such as matmul(x, gate, epilogue=lambda acc, up: wt.silu(acc) * up, "
            "up=matmul(x, up))"
        )
    shape = tuple(getattr(b, "shape", ()))
    if len(shape) < 2 or shape[-1] % 2:
        raise ShapeError(
            f"b: got shape {shape}; {kind} makes one column of two, so b is (..., K, N) with an even N: "
            f"one matrix with the columns of the gate and of what it gates"
        )
    return int(shape[-1])


def _sum(acc: Any, addend: Any, factor: Any) -> Any:
    return acc + factor * addend


def _second_product(
    a: Any, b: Any, c: Any, paired: ColumnPairs, n: int, options: Mapping[str, Any]
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Arguments of the GEMM whose result the epilogue reads: as those of the call, but not rounded below float32.

    C has the type of the call's result, so it becomes an operand of an epilogue.
    """
    values = a.values if isinstance(a, SparseMatrix) else a
    element = element_named(getattr(values, "dtype", None), "a")
    narrow = element is not None and element.bits <= 16 and element.name not in ("int8", "uint8")
    said = dict(options) | {"out_dtype": "float32" if narrow else None, "beta": None}
    beta = beta_of(options["beta"], c)
    if c is not None and beta != 0:
        said |= {"epilogue": _sum, "addend": columns(c, "c", paired.kind, n, second=True), "factor": beta}
    return (a, columns(b, "b", paired.kind, n, second=True)), said


def _first_sides(b: Any, c: Any, kind: str, n: int) -> tuple[Any, Any]:
    """B and C with the first column of each pair."""
    return columns(b, "b", kind, n, second=False), None if c is None else columns(c, "c", kind, n, second=False)


def gated_product(
    matmul: Callable[..., Any], arrays: tuple[Any, Any, Any, Any], options: Mapping[str, Any], gated: GatedEpilogue,
    operands: Mapping[str, Any],
) -> Any:  # fmt: skip
    """A call of `warptile.matmul` with such an epilogue.

    Args:
        matmul: `warptile.matmul`.
        arrays: a, b, c and ``out``, as given.
        options: its other keywords.
        gated: the epilogue.
        operands: the epilogue's, by name, as given.

    Returns:
        As `warptile.matmul`: (..., M, N / 2).
    """
    a, b, c, out = arrays
    kind = gated.paired.kind
    n = product_columns(b, kind)
    later = None
    if gated.reads_second:
        sides, said = _second_product(a, b, c, gated.paired, n, options)
        later = matmul(*sides, **said)
    named = gated.operands(operands, n, later)
    return matmul(a, *_first_sides(b, c, kind, n), out=out, epilogue=gated.function, **dict(options), **named)


@dataclass(frozen=True, eq=False, repr=False)
class GatedPlan(MatmulPlan):
    """A held plan of such a call.

    Attributes:
        second: the plan of the product with the second columns, which is the first to run.
        of_d: the plan of D.
        gated: the epilogue.
        n: columns of the product.
        options: keywords of the call that it was made for.
    """

    second: MatmulPlan
    of_d: MatmulPlan
    gated: GatedEpilogue
    n: int
    options: Mapping[str, Any]

    @property
    def gemms(self) -> tuple[GemmPlan, ...]:
        """The product with the second columns, where the epilogue reads it, and D."""
        return (*self.second.gemms, *self.of_d.gemms) if self.gated.reads_second else self.of_d.gemms

    @property
    def operands(self) -> tuple[str, ...]:
        """Those of the caller's epilogue."""
        return self.gated.given

    def explain(self) -> str:
        """Both GEMMs, each as `MatmulPlan.explain` says it."""
        if not self.gated.reads_second:
            return self.of_d.explain()
        which = {HALVES: "columns j + N / 2", "pairs": "columns 2 j + 1"}[self.gated.paired.kind]
        return f"first, the product with {which}:\n{self.second.explain()}\nthen D:\n{self.of_d.explain()}"

    def __call__(self, a: Any, b: Any, /, c: Any = None, *, out: Any = None, **epilogue_tensors: Any) -> Any:
        """Multiply arrays like those that the plan was made for; as `MatmulPlan`."""
        kind = self.gated.paired.kind
        if (*epilogue_tensors,) != self.gated.given:  # usually they come in this order
            check_operands(self.operands, epilogue_tensors)
        of_d = self.of_d.gemms[-1].call
        check_addend(c, of_d.beta, beta_given=of_d.beta_given)
        if product_columns(b, kind) != self.n:
            raise ShapeError(
                f"b: got shape {tuple(b.shape)}; this plan is for {self.n} columns: make another with "
                f"warptile.plan(a, b, ...)"
            )

        later = None
        if self.gated.reads_second:
            sides, said = _second_product(a, b, c, self.gated.paired, self.n, self.options)
            later = self.second(*sides, **{name: said[name] for name in ("addend", "factor") if name in said})
        named = self.gated.operands(epilogue_tensors, self.n, later)
        return self.of_d(a, *_first_sides(b, c, kind, self.n), out=out, **named)


def gated_plan(
    plan: Callable[..., Any], arrays: tuple[Any, Any, Any, Any], options: Mapping[str, Any], gated: GatedEpilogue,
    operands: Mapping[str, Any],
) -> GatedPlan:  # fmt: skip
    """A call of `warptile.plan` with such an epilogue; arguments as of `gated_product`.

    The second product is allocated, so that the plan of D knows its layout, and freed.
    """
    a, b, c, out = arrays
    kind = gated.paired.kind
    n = product_columns(b, kind)

    sides, said = _second_product(a, b, c, gated.paired, n, options)
    of_second = plan(*sides, **said)
    like = stored(a)
    shape = (*of_second.gemms[-1].batch, *([like.shape[-2]] if like.ndim > 1 else []), n // 2)
    made = array_view.empty(like, shape, of_second.plan.problem.d.dtype)
    named = gated.operands(operands, n, array_view.returned(made, like))
    of_d = plan(a, *_first_sides(b, c, kind, n), out=out, epilogue=gated.function, **dict(options), **named)
    return GatedPlan(of_second, of_d, gated, n, options)
