"""The arguments of a call that are not arrays: numbers, element types and names, checked before anything is planned."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

import numpy as np

from warptile.arrays.array_view import ArrayView
from warptile.dtypes import DType, dtype
from warptile.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, UnsupportedError

PRECISIONS = ("ieee", "tf32")


def refuse_unknown(
    function: str, names: tuple[str, ...], unknown: Mapping[str, object], call: Callable[[str, str], str] | None = None
) -> None:
    """Raise if there are keywords that ``function`` does not have.

    Args:
        function: as the caller wrote it, such as ``"matmul"``.
        names: the keywords that it has.
        unknown: the others that were given.
        call: writes the caller's call with a keyword, the second one, in the place of one that there is not.

    Raises:
        ArgumentTypeError: there is one; the message names the nearest keyword.
    """
    for name in unknown:
        nearest = get_close_matches(name, names, n=1)
        hint = f"Did you mean {nearest[0]!r}?" if nearest else f"It has {', '.join(names)}"
        if not nearest and "epilogue" in names and _is_array(unknown[name]):
            hint += f"; or an epilogue takes {name}, such as epilogue=lambda acc, {name}: acc + {name}, {name}={name}"
        if nearest and call is not None:
            hint += f" Write {call(name, nearest[0])}"
        raise ArgumentTypeError(f"{function}() got an unexpected keyword argument {name!r}. {hint}")


def plain(value: Any) -> Any:
    """A whole number that is an array or a scalar of NumPy's, as a file gives it, as Python's; else what was given."""
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.size == 1 else value


def number(value: Any, name: str) -> float:
    """A real number that is given as a Python or NumPy number or as an array of one element in host memory.

    Args:
        value: what was given.
        name: the argument, for messages.

    Returns:
        An int where an integer was given, else a float.

    Raises:
        ArgumentTypeError: something else, such as a complex number or a string.
        ArgumentError: an integer beyond float64's range.
        ShapeError: an array of several elements.
        UnsupportedError: an array in a GPU's memory, which could not be read without waiting for the GPU, or a tensor
            whose gradient would be lost.
    """
    if _is_array(value):
        value = _only_element(value, name)
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    whole = _whole(value)
    found = _real(value) if whole is None else whole
    if found is None:
        arrays = f", or an array, such as {name}=numpy.ones(4, 'float32')" if name.startswith("scale_") else ""
        raise ArgumentTypeError(f"{name}: got {value!r}; it takes a real number, such as {name}=0.5{arrays}")
    try:
        float(found)
    except OverflowError:
        raise ArgumentError(f"{name}: got an integer beyond float64's range; give {name}=float('inf')") from None
    return found


def _is_array(value: Any) -> bool:
    """Whether ``value`` is an array of some framework, with or without axes."""
    if isinstance(value, (type, np.generic)):
        return False
    return hasattr(value, "__cuda_array_interface__") or hasattr(value, "shape")


def _whole(value: Any) -> int | None:
    """The integer that ``value`` is, or None."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _real(value: Any) -> float | None:
    """The real number that ``value`` is, or None."""
    if isinstance(value, (str, bytes, complex, np.complexfloating, np.flexible)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _only_element(value: Any, name: str) -> Any:
    """The element of an array of one."""
    on_gpu = getattr(value, "is_cuda", False) or hasattr(value, "__cuda_array_interface__")
    shape = tuple(value.shape if hasattr(value, "shape") else value.__cuda_array_interface__["shape"])
    if math.prod(shape) != 1:
        raise ShapeError(
            f"{name}: got shape {shape}; it is one number for the whole operand, such as {name}=0.5; those of rows or "
            f"columns are an operand: epilogue=lambda acc, s: acc * s, s={name}"
        )
    operand = "" if name == "beta" else "epilogue=lambda acc, s: acc * s, s=" + name
    if getattr(value, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        raise UnsupportedError(
            f"{name}: requires a gradient, and none is recorded for {name}, which is read on the host: give "
            f"{name}.detach(){operand and f', or make it an operand: {operand}'}"
        )
    if on_gpu:
        read_by_kernel = operand and f", or have the kernel read it: {operand}"
        raise UnsupportedError(
            f"{name}: it is in a GPU's memory; {name} is read on the host when the launch is queued: "
            f"give {name}=float({name}), once, where waiting for the GPU does no harm{read_by_kernel}"
        )
    return value.item()


def scale_factor(value: Any, name: str, a: ArrayView) -> float:
    """One scale of a float8 operand, which the kernels apply as a part of alpha.

    Args:
        value: a number, an array with one element in host memory, or None for 1.
        name: ``"scale_a"`` or ``"scale_b"``, for messages.
        a: the operand, whose type must be a float8.

    Raises:
        DTypeError: the operands are of another type.
        ArgumentTypeError, ShapeError, UnsupportedError: as `number`.
    """
    if value is None:
        return 1.0
    if not a.dtype.name.startswith("float8"):
        raise DTypeError(f"{name}: it is for operands of 8 bits; a is {a.dtype.name}: give alpha={name} instead")
    return number(value, name)


def beta_of(beta: Any, c: Any) -> float:
    """The factor of C: what was given, else 1 with a ``c`` and 0 without (as torch's ``addmm``).

    Raises:
        ShapeError: beta is not zero and there is no ``c``.
        ArgumentTypeError, UnsupportedError: as `number`.
    """
    if beta is None:
        return 0 if c is None else 1
    factor = number(beta, "beta")
    if factor != 0 and c is None:
        raise ShapeError(f"c: got None with beta={factor}; give c of the result's shape, or leave beta out")
    return factor


def element_named(given: Any, argument: str) -> DType | None:
    """The element type that a name or a framework's dtype stands for; None for None.

    Args:
        given: such as ``"float32"``, ``"bf16"``, ``torch.float32``, ``numpy.float32``, ``numpy.dtype("float32")``,
            ``ml_dtypes.bfloat16`` or ``jax.numpy.bfloat16``.
        argument: whose value it is, for messages.

    Raises:
        DTypeError: no element type, or one that warptile does not know.
    """
    if given is None or isinstance(given, DType):
        return given
    name = given if isinstance(given, str) else _framework_name(given)
    if name is None:
        _refuse_type(argument, given)
    try:
        return dtype(name)
    except DTypeError:
        _refuse_type(argument, given)


def _framework_name(given: Any) -> str | None:
    """What a framework's dtype is called: of torch ``torch.float32``, of all others what NumPy makes of it."""
    if type(given).__module__.partition(".")[0] == "torch":
        return str(given).removeprefix("torch.")
    try:
        storage = np.dtype(given)
    except (TypeError, ValueError):
        return None
    return storage.name if storage.isnative else None


def _refuse_type(argument: str, given: object) -> NoReturn:
    raise DTypeError(
        f"{argument}: got {given!r}; it takes the name of an element type or a framework's dtype, such as "
        f"{argument}='float32', {argument}=torch.float32 or {argument}=numpy.float32"
    )


def precision_named(given: Any) -> str | None:
    """``precision`` if it is one.

    Raises:
        DTypeError: it is not.
    """
    if given is None or (isinstance(given, str) and given in PRECISIONS):
        return given
    raise DTypeError(f"precision: got {given!r}; it takes None, 'ieee' or, for float32 operands, 'tf32'")


def whole_number(given: Any, argument: str) -> int | None:
    """A whole number from 1 on; None for None.

    Raises:
        ArgumentTypeError: no whole number.
        ArgumentError: below 1.
    """
    if given is None:
        return None
    value = None if _is_array(given) else _whole(given)
    if value is None:
        raise ArgumentTypeError(f"{argument} is {given!r}; it takes a whole number from 1 on, such as {argument}=120")
    if value < 1:
        raise ArgumentError(f"{argument} is {value}; it takes a whole number from 1 on, such as {argument}=120")
    return value


def flag(given: Any, argument: str) -> bool:
    """True or False.

    Raises:
        ArgumentTypeError: something else.
    """
    if isinstance(given, (bool, np.bool_)):
        return bool(given)
    raise ArgumentTypeError(f"{argument}: got {given!r}; it takes True or False, such as {argument}=True")


class FixedConfig(Mapping[str, Any]):
    """A configuration as it was when a call was given it: equal ones, in any order, are found as the same call."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._of = dict(config)

    def __getitem__(self, name: str) -> Any:
        return self._of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __hash__(self) -> int:
        return hash(frozenset(self._of.items()))


def fixed(config: Any) -> Any:
    """A configuration that does not change when the caller's does; what is none is returned as it is."""
    return FixedConfig(config) if isinstance(config, Mapping) else config


def tunables(config: Any, rung: str | None) -> dict[str, int] | None:
    """A configuration's names and whole numbers; None for None. Whether they are the rung's is for the planner.

    Raises:
        ArgumentError: no rung is named whose configuration it is.
        ArgumentTypeError: no mapping from names to whole numbers.
    """
    if config is None:
        return None
    if not isinstance(config, Mapping):
        raise ArgumentTypeError(
            f"config: got {config!r}; it takes a mapping from names to whole numbers, such as "
            f"rung='simt-naive', config={{'BM': 8, 'BN': 32}}"
        )
    found = {name: _whole(value) for name, value in config.items()}
    for name, value in found.items():
        if not isinstance(name, str) or value is None:
            raise ArgumentTypeError(
                f"config: got {name!r}: {config[name]!r}; it takes names and whole numbers, such as "
                f"rung='simt-naive', config={{'BM': 8, 'BN': 32}}"
            )
    if rung is None:
        raise ArgumentError("config was given without a rung; name it, such as rung='simt-warptile'")
    return {name: value for name, value in found.items() if value is not None}
