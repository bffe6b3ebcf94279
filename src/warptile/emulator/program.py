"""A PTX entry and everything it calls, laid out as one list of steps.

Called functions precede the entry, so that lanes inside a call (at lower positions) run before those that wait after
it, and lanes inside a loop before those that have left it: the scheduler always runs the lowest position.
Registers and local variables are one set per function; `recursion` says what becomes of them in functions that are
called while they run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import RegisterFile
from warptile.emulator.register_slots import register_slots
from warptile.errors import EmulationError, SourceLocation, UnknownInstruction
from warptile.ptx.instruction import (
    Instruction,
    PtxFunction,
    PtxModule,
    Register,
    Symbol,
    Variable,
)

PLAIN, WARP_COLLECTIVE, MASK_COLLECTIVE, BRANCH, INDEXED_BRANCH, CALL, RETURN, EXIT, BARRIER, MBARRIER_WAIT = range(10)
CLUSTER_BARRIER = 10

FUNCTION_ADDRESS_BASE = 0x1000
"""Addresses of functions, for calls through a pointer: 16 apart, in no memory."""

ALLOCATORS = ("malloc", "__cuda_syscall_aligned_malloc")
"""What `malloc`, ``new`` and `__nv_aligned_device_malloc` are to the compiler."""

_ROOM_FOR_RECURSION = 1 << 28
"""Bytes that local variables of further activations take at most in all lanes together, but for ``_LEAST_ROOM``; and as
many that `alloca` takes."""

_OF_STACK = frozenset({"alloca", "stacksave", "stackrestore"})

_FRAME_ALIGNMENT = 16

_LEAST_ROOM, _MOST_ROOM = 1 << 10, 1 << 14
"""The least and the most of them that a lane gets: 1 KiB is the default of ``cudaLimitStackSize``."""

NATIVE_FUNCTIONS = ("vprintf", "__assertfail", *ALLOCATORS, "free")
"""Functions that CUDA's run time supplies; the emulator does."""


@dataclass(frozen=True)
class Routine:
    """A function placed in the program: its first position, and the arrays of its registers."""

    function: PtxFunction
    start: int
    registers: RegisterFile

    def position(self, label: str) -> int:
        """Where a label of this function stands."""
        found = self.function.labels.get(label)
        if found is None:
            raise UnknownInstruction(f"{self.function.name} has no label {label}")
        return self.start + found


@dataclass
class ProgramLayout:
    """Positions of functions and addresses of variables, before any instruction is built.

    Attributes:
        routines: reachable functions by name; the entry is last.
        shared: address of each shared variable; ``shared_bytes`` is the end of the static and dynamic part.
        local: by function and name, offset of each local variable and call parameter in a lane's frame;
            ``local_bytes`` is the end.
        constants: module variables in global memory by name.
        length: number of positions.
        shifts: of each function that may be called while it runs and has local variables, how far these are from their
            places in each lane's present activation.
        recursion_start: where further activations have theirs, up to ``local_bytes``.
        stack: first byte, and the one behind the last, of what a lane takes by `alloca`; None if no function does.
        stack_users: where the functions start that do.
    """

    entry: PtxFunction
    routines: dict[str, Routine] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    local: dict[tuple[str, str], int] = field(default_factory=dict)
    local_bytes: int = 0
    length: int = 0
    shifts: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    recursion_start: int = 0
    stack: tuple[int, int] | None = None
    stack_users: frozenset[int] = frozenset()

    def first_local(self, name: str) -> int:
        """Where a function's own local variables start, or a little before: at a multiple of what aligns frames."""
        return min((self.local[name, each.name] for each in self._locals(name)), default=0) & -_FRAME_ALIGNMENT

    def moved_bytes(self, name: str) -> int:
        """Bytes that each further activation of a function takes for them."""
        ends = (self.local[name, each.name] + each.size_bytes for each in self._locals(name))
        return _up(max(ends, default=self.first_local(name)) - self.first_local(name), _FRAME_ALIGNMENT)

    def shifts_of(self, routine: Routine) -> dict[str, NDArray[np.int64]]:
        """`shifts` of each local variable of a function that moves."""
        name = routine.function.name
        return {each.name: self.shifts[name] for each in self._locals(name)} if name in self.shifts else {}

    def _locals(self, name: str) -> list[Variable]:
        return [each for each in self.routines[name].function.variables if each.space == "local"]

    def frame_of(self, routine: Routine) -> dict[str, int]:
        """Offset of each local variable and call parameter of a function."""
        name = routine.function.name
        return {symbol: offset for (function, symbol), offset in self.local.items() if function == name}

    @property
    def allocates(self) -> bool:
        """Whether some function calls `malloc`."""
        functions = (routine.function for routine in self.routines.values())
        return any(name in ALLOCATORS for function in functions for name in function.symbols)


def lay_out(
    module: PtxModule, entry: str, *, lanes: int, dynamic_shared_bytes: int, shared_start: int
) -> ProgramLayout:
    """Find what ``entry`` reaches and place functions, shared variables and local frames."""
    function = module.functions.get(entry)
    if function is None or not function.entry:
        known = ", ".join(module.entries) or "none"
        raise EmulationError(f"entry: got {entry!r}; this PTX has the kernels: {known}")
    order = _reachable(module, function)
    layout = ProgramLayout(function)
    position = 0
    for reached in order:
        assert reached.body is not None
        layout.routines[reached.name] = Routine(reached, position, RegisterFile(lanes, register_slots(reached)))
        position += len(reached.body) + 1  # one more: falling off the end is a return
    layout.length = position
    _place_shared(layout, module, order, dynamic_shared_bytes, shared_start)
    top = 0
    for reached in order:
        for variable in _frame(reached):
            top = _up(top, variable.alignment_bytes)
            layout.local[reached.name, variable.name] = top
            top += variable.size_bytes
    room = min(max(_LEAST_ROOM, _ROOM_FOR_RECURSION // lanes), _MOST_ROOM)
    layout.stack_users = frozenset(
        each.start for each in layout.routines.values() if any(i.opcode in _OF_STACK for i in each.function.body or ())
    )
    if layout.stack_users:
        layout.stack = _up(top, _FRAME_ALIGNMENT), _up(top, _FRAME_ALIGNMENT) + room
        top = layout.stack[1]
    layout.local_bytes = top
    again = _recursive(module, order)
    layout.shifts = {
        each.name: np.zeros(lanes, dtype=np.int64)
        for each in order
        if each.name in again and any(variable.space == "local" for variable in each.variables)
    }
    if layout.shifts:
        layout.recursion_start = _up(top, _FRAME_ALIGNMENT)
        layout.local_bytes = layout.recursion_start + room
    return layout


def _recursive(module: PtxModule, order: list[PtxFunction]) -> set[str]:
    """Functions that may be called while they run: by name, or through a pointer to whatever has its address taken."""
    names = {function.name for function in order}
    pointed = {symbol for variable in module.variables for _, symbol, _ in variable.relocations}
    calls: dict[str, set[str]] = {}
    for function in order:
        body = function.body or ()
        direct = {_callee(each) for each in body if each.opcode == "call"}
        pointed |= set(function.symbols) - direct
        calls[function.name] = direct
    pointed &= names
    for found in calls.values():
        if "" in found:
            found |= pointed
        found &= names
    again = set[str]()
    for name in calls:
        reached, pending = set[str](), list(calls[name])
        while pending:
            each = pending.pop()
            if each not in reached:
                reached.add(each)
                pending += calls[each]
        if name in reached:
            again.add(name)
    return again


def _callee(call: Instruction) -> str:
    """The name of the function that is called; empty where a register holds its address."""
    for operand in call.operands:
        if isinstance(operand, Register):
            return ""
        if isinstance(operand, Symbol):
            return operand.name
    return ""


def callee_names(module: PtxModule, function: PtxFunction) -> list[str]:
    """Functions that ``function`` calls by name, or whose address it takes."""
    return [name for name in function.symbols if name in module.functions]


def used_variables(module: PtxModule, entry: str) -> frozenset[str]:
    """Variables of a module that a kernel may access: what its functions name, and what those variables point to."""
    function = module.functions.get(entry)
    if function is None:
        return frozenset()
    found = {name for reached in _reachable(module, function) for name in reached.symbols}
    points_to = {each.name: {symbol for _, symbol, _ in each.relocations} for each in module.variables}
    while more := {target for name in found for target in points_to.get(name, ())} - found:
        found |= more
    return frozenset(found)


def _reachable(module: PtxModule, entry: PtxFunction) -> list[PtxFunction]:
    """Every function that may run, callees first."""
    done: dict[str, PtxFunction] = {}
    path: list[str] = []
    pointed = [symbol for variable in module.variables for _, symbol, _ in variable.relocations]

    def visit(function: PtxFunction) -> None:
        if function.name in path or function.name in done or function.body is None:
            return
        path.append(function.name)
        names = callee_names(module, function)
        if function is entry:
            names += [name for name in pointed if name in module.functions]
        for name in names:
            if name not in NATIVE_FUNCTIONS:
                visit(module.functions[name])
        path.pop()
        done[function.name] = function

    visit(entry)
    return list(done.values())


def _frame(function: PtxFunction) -> list[Variable]:
    """Variables of a function that live once per lane: locals, and parameters of calls."""
    frame = [v for v in function.variables if v.space in ("local", "param")]
    if not function.entry:
        frame += [v for v in (*function.parameters, *function.returns) if isinstance(v, Variable)]
    return frame


def _place_shared(
    layout: ProgramLayout, module: PtxModule, order: list[PtxFunction], dynamic_shared_bytes: int, shared_start: int
) -> None:
    """Give an address to every shared variable that a reachable function names.

    The others take no memory, as with ptxas: the shared arrays of all kernels of a file may stand at module scope.
    """
    named = {name for function in order for name in function.symbols}
    everywhere = (*module.variables, *(v for function in order for v in function.variables))
    variables = [v for v in everywhere if v.space == "shared" and v.name in named]
    top = shared_start
    for variable in variables:
        if variable.size_bytes:
            top = _up(top, variable.alignment_bytes)
            layout.shared[variable.name] = top
            top += variable.size_bytes
    unsized = [v for v in variables if not v.size_bytes]
    if unsized or dynamic_shared_bytes:
        # All unsized arrays are the same memory: the dynamic part, behind the static one.
        top = _up(top, max([16, *(v.alignment_bytes for v in unsized)]))
        layout.shared.update({v.name: top for v in unsized})
        top += dynamic_shared_bytes
    layout.shared_bytes = top


def _up(value: int, multiple: int) -> int:
    return -(-value // max(multiple, 1)) * max(multiple, 1)


@dataclass
class ProgramStep:
    """One position of the program, ready to run.

    Attributes:
        kind: PLAIN, BRANCH, ...: what the scheduler does with it.
        instruction: what stands there; None for the return behind a function's last instruction.
        run: executes it for lanes whose guard holds (nothing for pure control flow).
        guard: reads the guard predicate as a bool per active lane, negation applied; None without one.
        target: position of a direct branch or call.
        detail: what else the kind needs.
        reads: registers that it reads, without the guard's.
        writes: registers that it writes.
        watched: ``run`` or ``guard`` does more than the instruction: a check has wrapped it.
    """

    kind: int
    instruction: Instruction | None
    run: Callable[..., None] | None = None
    guard: Callable[..., object] | None = None
    target: int = -1
    detail: object = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    watched: bool = False

    @property
    def location(self) -> SourceLocation | None:
        """Where it stands."""
        return self.instruction.location if self.instruction else None
