"""Constraints that rungs share, each stated once: operand types and majors, and the size of a linear grid.

A check returns None or a reason, never an empty one, so that checks are joined by `or`; a later one may rely on the
earlier ones having passed.
"""

from __future__ import annotations

from typing import Any, overload

from warptile.epilogue.expressions import QUANTIZED_TYPES
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config

MAX_GRID_BLOCKS = 2**31 - 1
"""Most blocks along x of a grid: CUDA C++ Programming Guide, "Technical specifications per compute capability"."""

OUTPUTS_OF_ACCUMULATOR = {
    "float16": ("float16", "bfloat16", "float32"),
    "float32": ("float16", "bfloat16", "float32"),
    "float32_fast": ("float16", "bfloat16", "float32"),
    "float64": ("float64",),
    "int32": ("int32",),
    "int32_saturating": ("int32",),
    "int32_xor": ("int32",),
}
"""Types of C and D that the epilogue can make from each accumulator."""


ANY_ORDER = ("int32",)
"""Accumulators whose sums wrap around, which is the same in any order."""

INTEGER_ACCUMULATORS = ("int32", "int32_saturating")
"""Accumulators of which an epilogue makes floats too."""


@overload
def ceil_div(extent: int, tile: int) -> int: ...
@overload
def ceil_div(extent: Any, tile: Any) -> Any: ...
def ceil_div(extent: Any, tile: Any) -> Any:
    """Tiles of ``tile`` elements that cover ``extent``; of arrays, of each element."""
    return -(-extent // tile)


def blocks(problem: Problem, config: Config) -> int:
    """Blocks of a launch that gives each BM x BN tile of D one block; zero when D is empty."""
    return ceil_div(problem.m, config["BM"]) * ceil_div(problem.n, config["BN"]) * problem.batch


def operand_reason(
    problem: Problem,
    dtypes: tuple[str, ...],
    accumulators: tuple[str, ...] | None = None,
    a_layouts: tuple[str, ...] = ("row",),
    *,
    sparse: bool = False,
    batches: bool = False,
    quantized: bool = False,
    block_scales: bool = False,
    eight_bits: bool = False,
) -> str | None:
    """Why operands of these types and majors cannot be taken, or None.

    Args:
        problem: what is asked for.
        dtypes: operand types that the rung takes.
        accumulators: accumulator types that the rung has; None means the default one of the operands' type.
        a_layouts: layouts in which it reads A.
        sparse: it takes a sparse A, and no other.
        batches: it takes a batch of matrices in one launch.
        quantized: it takes a quantized B, and no other.
        block_scales: it takes scales of blocks of A and B.
        eight_bits: it writes 8-bit floats, from float32 sums.
    """
    if problem.epilogue is not None and problem.epilogue.program.block_scales and not block_scales:
        return (
            "blocks of A or B have scales, which wgmma-final alone applies as it promotes sums; multiply dequantized "
            "operands, such as (a.to(torch.float32) * scales).to(torch.bfloat16)"
        )
    if problem.batch > 1 and not batches:
        return f"the batch has {problem.batch} matrices; it takes one in a launch"
    if problem.a.sparse != sparse:
        if sparse:
            return "A is dense; it takes 2:4 weights, such as matmul(warptile.sparsify(a), b)"
        return "A is sparse, half of it stored; it takes a dense A, such as a.to_dense()"
    if (problem.b.quantized is not None) != quantized:
        if quantized:
            return "B is stored as it is; it takes quantized weights, such as matmul(x, warptile.quantize(w))"
        return f"B is quantized, {problem.b.quantized}; it takes none of that: matmul(x, w.dequantize().T)"
    element = problem.a.dtype
    if element.name not in dtypes:
        return f"operands are {element.name}; it takes {', '.join(dtypes)}"
    allowed = accumulators or element.accumulators[:1]
    if problem.accumulator.name not in allowed:
        return f"the accumulator is {problem.accumulator.name}; for {element.name} it has {', '.join(allowed)}"
    outputs = OUTPUTS_OF_ACCUMULATOR[problem.accumulator.name]
    if eight_bits and problem.accumulator.name.startswith("float32"):
        outputs += QUANTIZED_TYPES
    if problem.epilogue is not None and problem.accumulator.name in INTEGER_ACCUMULATORS:
        outputs += OUTPUTS_OF_ACCUMULATOR["float32"]
        if problem.c is not None and problem.d.dtype.kind == "float":
            return (
                f"C is {problem.c.dtype.name} and sums are integers; it adds C in the epilogue, as an operand of that"
            )
    if problem.d.dtype.name not in outputs:
        return (
            f"D is {problem.d.dtype.name}; from a {problem.accumulator.name} accumulator it writes {', '.join(outputs)}"
        )
    if problem.c is not None and problem.c.dtype != problem.d.dtype:
        return f"C is {problem.c.dtype.name} and D is {problem.d.dtype.name}; they need one type"
    majors = (("A", problem.a, a_layouts), ("C", problem.c, ("row",)), ("D", problem.d, ("row",)))
    for name, operand, taken in majors:
        if operand is not None and operand.major not in taken:
            return f"{name} is {operand.major}-major; it needs row-major"
    return None


def keys_reason(config: Config, keys: tuple[str, ...]) -> str | None:
    """Why the configuration's names are wrong, or None: it needs exactly ``keys``, each at least one."""
    if set(config) != set(keys):
        return f"the configuration has {', '.join(sorted(config)) or 'nothing'}; it needs {', '.join(keys)}"
    small = [key for key in keys if config[key] < 1]
    return f"{small[0]} is {config[small[0]]}; it must be at least 1" if small else None


def keeps_order(problem: Problem) -> bool:
    """Whether K may not be split, because batch invariance is asked for and sums depend on the order of additions."""
    return problem.batch_invariant and problem.accumulator.name not in ANY_ORDER


def padding_reason(problem: Problem, config: Config, usual_bk: int) -> str | None:
    """Why a chain of multiply-adds has other bits than with K tiles of ``usual_bk``, where that matters, or None.

    The zeros that fill the last K tile are multiplied too, and turn a sum of -0 (of products that underflow) into +0,
    so that K has to be filled up to the same extent. The adder of a tensor core never returns -0; there zeros change
    nothing.
    """
    if not keeps_order(problem):
        return None
    padded, usual = (ceil_div(problem.k, bk) * bk for bk in (config["BK"], usual_bk))
    if padded == usual:
        return None
    return (
        f"BK is {config['BK']}, which fills K up to {padded} with zeros; with batch_invariant=True it is {usual} in "
        f"every configuration: take BK={usual_bk}"
    )


def grid_reason(problem: Problem, config: Config) -> str | None:
    """Why one block for each tile does not fit into a linear grid, or None."""
    count = blocks(problem, config)
    if count > MAX_GRID_BLOCKS:
        extents = " x ".join(map(str, ([problem.batch] if problem.batch > 1 else []) + [problem.m, problem.n]))
        return (
            f"D of {extents} has {count} tiles of {config['BM']} x {config['BN']}; a grid has at most "
            f"{MAX_GRID_BLOCKS} blocks: take larger tiles or split the problem"
        )
    return None
