"""The CUDA-core rungs: what each takes, its tunables, and its launch."""

from __future__ import annotations

from warptile.launch import Dim3
from warptile.problem import Problem
from warptile.rungs.legality import blocks, grid_reason, keys_reason, operand_reason
from warptile.rungs.rung import Config, Rung

ANY_DTYPE = ("float32", "float16", "bfloat16", "float64", "tfloat32", "int8", "uint8")
MAX_THREADS = 1024


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _types(problem: Problem) -> str:
    """The template arguments that every kernel starts with: operand, accumulator and output type, major of B."""
    a, accumulator, d = problem.a.dtype.cuda, problem.accumulator.cuda, problem.d.dtype.cuda
    return f"{a}, {accumulator}, {d}, {_flag(problem.b.major == 'col')}"


def _linear_grid(problem: Problem, config: Config) -> Dim3:
    return (blocks(problem, config), 1, 1)


def _no_dynamic_shared(problem: Problem, config: Config) -> int:
    return 0


# --- simt-naive ---------------------------------------------------------------------------------------------------


def _thread_each(problem: Problem, config: Config) -> Dim3:
    return (config["BM"] * config["BN"], 1, 1)


def _threads_reason(config: Config) -> str | None:
    threads = config["BM"] * config["BN"]
    if threads > MAX_THREADS:
        return f"BM * BN is {threads} threads; a block has at most {MAX_THREADS}"
    return None


def _naive_illegal(problem: Problem, config: Config) -> str | None:
    return (
        operand_reason(problem, ANY_DTYPE)
        or keys_reason(config, ("BM", "BN"))
        or _threads_reason(config)
        or grid_reason(problem, config)
    )


NAIVE = Rung(
    name="simt-naive",
    family="simt",
    idea="one thread computes one element, straight from global memory",
    file="simt/naive.cuh",
    previous=None,
    min_arch=70,
    dtypes=ANY_DTYPE,
    default_config=lambda problem: {"BM": 8, "BN": 32},
    candidates=lambda problem: tuple({"BM": bm, "BN": bn} for bn in (32, 16, 64) for bm in (8, 16, 4)),
    illegal=_naive_illegal,
    name_expression=lambda problem, config: f"warptile::simt_naive<{_types(problem)}, {config['BM']}, {config['BN']}>",
    grid=_linear_grid,
    threads=_thread_each,
    dynamic_shared_bytes=_no_dynamic_shared,
)

SIMT_RUNGS = (NAIVE,)
