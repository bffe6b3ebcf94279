"""Names of one function: nested scopes of registers, variables and labels, made unique in one flat namespace."""

from __future__ import annotations

from warptile.ptx.instruction import Label, Register, Symbol, Vector

Entity = Register | Symbol | Label | Vector
"""What a name stands for; a vector is what ``.reg .v4 .f32`` declares."""

_ELEMENTS = {letter: place for letters in ("xyzw", "rgba") for place, letter in enumerate(letters)}

_TRIPLES = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")

SPECIAL_REGISTERS = frozenset(
    [f"{name}.{axis}" for name in _TRIPLES for axis in "xyzw"]
    + [f"envreg{i}" for i in range(32)]
    + [f"pm{i}" for i in range(8)]
    + [f"pm{i}_64" for i in range(8)]
    + [f"reserved_smem_offset_{i}" for i in range(2)]
    + [
        "laneid",
        "warpid",
        "nwarpid",
        "smid",
        "nsmid",
        "gridid",
        "is_explicit_cluster",
        "cluster_ctarank",
        "cluster_nctarank",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "reserved_smem_offset_begin",
        "reserved_smem_offset_end",
        "reserved_smem_offset_cap",
        "total_smem_size",
        "aggr_smem_size",
        "dynamic_smem_size",
        "current_graph_exec",
    ]
)
"""Every special register of PTX ISA 9, without the percent sign."""


class Names:
    """Allocates unique names; a name is never reused."""

    def __init__(self, parent: Names | None = None) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        self._parent = parent

    def __contains__(self, name: str) -> bool:
        return name in self._taken or (self._parent is not None and name in self._parent)

    def own(self, name: str) -> bool:
        """Whether ``name`` was given here, not by the parent."""
        return name in self._taken

    def unique(self, name: str) -> str:
        """``name``, or ``name$1``, ``name$2`` ... if it is taken; the result is taken from now on."""
        given = name
        count = self._next.get(name, 0)
        while given in self:
            count += 1
            given = f"{name}${count}"
        self._next[name] = count
        self._taken.add(given)
        return given


class Scope:
    """What names mean inside one pair of braces, or in the module when ``parent`` is None."""

    __slots__ = ("entities", "parent")

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.entities: dict[str, Entity] = {}

    def find(self, name: str) -> Entity | None:
        """The nearest entity called ``name``, which may be an element of a vector, ``v.x``."""
        found = self._declared(name)
        if found is None and name[-2:-1] == "." and name[-1] in _ELEMENTS:
            vector, place = self._declared(name[:-2]), _ELEMENTS[name[-1]]
            if isinstance(vector, Vector) and place < len(vector.elements):
                element = vector.elements[place]
                assert isinstance(element, Register)
                return element
        return found

    def _declared(self, name: str) -> Entity | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.entities.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None
