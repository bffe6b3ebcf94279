"""``tex``, ``tld4``, ``suld`` and ``sust``: textures and surfaces.

PTX ISA, "Texture Instructions" and "Surface Instructions"; CUDA C++ Programming Guide, "Texture Fetching". A handle is
the address of a texture object in global memory. Texels are loaded and stored like any other memory, so that the checks
see them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.lanes import Active, Array
from warptile.emulator.memory.accesses import GLOBAL_BASE
from warptile.errors import IllegalAddress, IllegalInstruction
from warptile.launch.texture import BORDER, FLOAT, MIRROR, SIGNED, TEXTURE_BYTES, WRAP, Texture
from warptile.ptx.instruction import Instruction, Register, TensorAddress

_SHAPES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2}
_RESULTS = {"u32": np.uint32, "s32": np.int32, "f32": np.float32}
_COORDINATES = {"s32": np.int32, "f32": np.float32}
_SURFACE_TYPES = {"b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64}
_WEIGHT_STEPS = np.float32(256)
"""Weights of linear filtering have 8 bits of fraction."""

_CHANNELS = 4


class _Sampler:
    """What the instructions share: the handle, and the coordinates."""

    def __init__(self, instruction: Instruction, assembler: Assembler, place: int, shape: str) -> None:
        self.instruction, self.machine = instruction, assembler.machine
        operand = instruction.operands[place]
        if not isinstance(operand, TensorAddress) or not isinstance(operand.base.base, Register):
            raise unknown(instruction, "needs a texture object and coordinates")
        self.handle = assembler.source(operand.base.base, np.uint64)
        self.elements = [each for each in operand.coordinates.elements if each is not None]
        self.shape, self.rank = shape, _SHAPES[shape]
        self.layer: Source | None = None
        if shape.startswith("a"):
            self.layer = assembler.source(self.elements.pop(0), np.int32)
        if len(self.elements) < self.rank:
            raise unknown(instruction, f"needs {self.rank} coordinates")

    def objects(self, active: Active, *, surface: bool) -> Iterator[tuple[Active, Texture]]:
        """The lanes of each object that is used, and the object."""
        handles = np.broadcast_to(self.handle(active), active.count)
        for handle in np.unique(handles).tolist():
            lanes = active.where(handles == handle)
            yield lanes, self._object(lanes, int(handle), surface)

    def _object(self, active: Active, handle: int, surface: bool) -> Texture:
        space = self.machine.memory.global_space
        start = handle - GLOBAL_BASE
        home = space.around(start) if 0 <= start < len(space.data) else None
        what = "surface" if surface else "texture"
        found = None
        if home is not None and home.start == start and home.size == TEXTURE_BYTES:
            found = Texture.decode(space.data[start : start + TEXTURE_BYTES].tobytes())
        if found is None or found.surface != surface:
            raise self.illegal(active, f"{handle:#x} is no {what} object, or no longer one")
        if found.shape != self.shape:
            raise self.illegal(active, f"the {what} object is {found.shape}, the instruction reads {self.shape}")
        return found

    def illegal(self, active: Active, what: str) -> IllegalInstruction:
        """The error for the first lane."""
        memory = self.machine.memory
        return IllegalInstruction(
            f"{self.instruction.text}: {memory.thread(active.lanes[0])}: {what}",
            kernel=memory.kernel,
            location=self.instruction.location,
        )

    def layer_start(self, active: Active, texture: Texture) -> Array | int:
        """Bytes before each lane's layer, which is clamped."""
        if self.layer is None:
            return 0
        layer = np.broadcast_to(self.layer(active), active.count)
        found: Array = np.clip(layer, 0, texture.layers - 1).astype(np.int64) * texture.slice_bytes
        return found


def _places(texture: Texture, positions: Sequence[Array], scale: int) -> Array:
    """Bytes from the start of a texture, or of a layer, to texels; x counts elements of ``scale`` bytes."""
    found = positions[0].astype(np.int64) * scale
    for position, step in zip(positions[1:], (texture.pitch, texture.slice_bytes), strict=False):
        found = found + position.astype(np.int64) * step
    return found


def _inside(position: Array, extent: int, mode: int) -> Array:
    """Where texels at integer positions are read, and -1 for the border."""
    if mode == WRAP:
        return position % extent
    if mode == BORDER:
        return np.where((position >= 0) & (position < extent), position, -1)
    return np.clip(position, 0, extent - 1)


def _scaled(coordinate: Array, extent: int, texture: Texture, mode: int) -> Array:
    """Coordinates in texels."""
    found: Array = coordinate.astype(np.float32)
    if not texture.normalized:
        return found
    if mode == WRAP:
        found = found - np.floor(found)
    elif mode == MIRROR:
        whole = np.floor(found)
        part = found - whole
        found = np.where(whole % 2 == 0, part, np.float32(1) - part)
    return found * np.float32(extent)


class _Fetch(_Sampler):
    """Loads of texels."""

    def texels(self, active: Active, texture: Texture, positions: Sequence[Array]) -> Array:
        """Channels of a texel of each lane, in the type of the texture; ``positions`` are of texels, -1 outside."""
        size = texture.texel_bytes
        inside = np.all([each >= 0 for each in positions], axis=0)
        kind = {FLOAT: "f", SIGNED: "i"}.get(texture.kind, "u")
        found = np.zeros((active.count, _CHANNELS), dtype=np.float32 if texture.as_float or kind == "f" else f"{kind}4")
        found[~inside] = np.array(texture.border).astype(found.dtype)
        if inside.any():
            lanes = active if inside.all() else active.where(inside)
            start = self.layer_start(lanes, texture)
            places = _places(texture, [each[inside] for each in positions], size) + start + texture.address
            words = self.machine.memory.load(self.instruction, lanes, "global", places, size)
            channels = np.ascontiguousarray(words).view(f"{kind}{texture.bits // 8}").reshape(lanes.count, -1)
            values = channels.astype(found.dtype)
            if texture.as_float and kind != "f":
                most = np.float32((1 << (texture.bits - (kind == "i"))) - 1)
                values = np.maximum(channels.astype(np.float32) / most, np.float32(-1))
            found[inside, : texture.channels] = values
        return found

    def nearest(self, active: Active, texture: Texture, coordinates: Sequence[Array]) -> Array:
        """The texel that holds each point; of integer coordinates none outside."""
        positions = []
        for coordinate, extent, mode in zip(coordinates, texture.extents, texture.outside, strict=False):
            if coordinate.dtype == np.int32:
                positions.append(_inside(coordinate, extent, BORDER))
            else:
                at = _whole(np.floor(_scaled(coordinate, extent, texture, mode)))
                positions.append(_inside(at, extent, mode))
        return self.texels(active, texture, positions)

    def interpolated(self, active: Active, texture: Texture, coordinates: Sequence[Array]) -> Array:
        """Means of the two, four or eight texels around each point."""
        total = np.zeros((active.count, _CHANNELS), np.float32)
        axes = []
        for lows, weight, extent, mode in self._around(texture, coordinates):
            axes.append(
                [
                    (_inside(lows, extent, mode), np.float32(1) - weight),
                    (_inside(lows + 1, extent, mode), weight),
                ]
            )
        for corner in itertools.product(*axes):
            weight = np.prod([each for _, each in corner], axis=0).astype(np.float32)
            taken = weight > 0
            if taken.any():
                texels = self.texels(active.where(taken), texture, [each[taken] for each, _ in corner])
                total[taken] += weight[taken, None] * texels.astype(np.float32)
        return total

    def gathered(self, active: Active, texture: Texture, coordinates: Sequence[Array], channel: int) -> Array:
        """One channel of the four texels around each point, counter-clockwise from the lower left."""
        (left, _, width, over_x), (upper, _, height, over_y) = self._around(texture, coordinates)
        corners = ((0, 1), (1, 1), (1, 0), (0, 0))
        found = [
            self.texels(active, texture, [_inside(left + x, width, over_x), _inside(upper + y, height, over_y)])[
                :, channel
            ]
            for x, y in corners
        ]
        return np.stack(found, axis=1)

    def _around(self, texture: Texture, coordinates: Sequence[Array]) -> list[tuple[Array, Array, int, int]]:
        """Of each dimension the lower texel, the weight of the next one, the extent, and what is read outside."""
        found = []
        for coordinate, extent, mode in zip(coordinates, texture.extents, texture.outside, strict=False):
            point = _scaled(coordinate, extent, texture, mode) - np.float32(0.5)
            low = np.floor(point)
            with np.errstate(invalid="ignore"):
                weight = np.floor((point - low) * _WEIGHT_STEPS + np.float32(0.5)) / _WEIGHT_STEPS
            found.append((_whole(low), np.nan_to_num(weight), extent, mode))
        return found


def _whole(numbers: Array) -> Array:
    """Floats without fraction as integers; those that are none, or too large, as the nearest that is."""
    limit = np.float32(1 << 30)
    found: Array = np.clip(np.nan_to_num(numbers), -limit, limit).astype(np.int64)
    return found


@builder("tex", "tld4")
def build_fetch(instruction: Instruction, assembler: Assembler) -> Operation:
    """`tex` of one to three dimensions and layers, without mipmaps; `tld4`."""
    modifiers = Modifiers(instruction)
    gathers = instruction.opcode == "tld4"
    channel = "rgba".index(modifiers.need("r", "g", "b", "a")) if gathers else 0
    level = modifiers.take("base", "level", "grad")  # there is one level
    shape = modifiers.need("2d", "a2d") if gathers else modifiers.need(*_SHAPES)
    modifiers.need("v4")
    result, coordinate = _RESULTS[modifiers.need(*_RESULTS)], modifiers.last()
    modifiers.done()
    if coordinate not in _COORDINATES or len(instruction.operands) > 2 + (level == "level") + 2 * (level == "grad"):
        raise unknown(instruction, "offsets and comparisons are not emulated")
    sampler = _Fetch(instruction, assembler, 1, shape)
    sources = [assembler.source(each, _COORDINATES[coordinate]) for each in sampler.elements[: sampler.rank]]
    targets = assembler.destinations(instruction.operands[0], result)

    def fetch(active: Active) -> None:
        for lanes, texture in sampler.objects(active, surface=False):
            points = [np.broadcast_to(each(lanes), lanes.count) for each in sources]
            if gathers:
                values = sampler.gathered(lanes, texture, points, channel)
            elif texture.linear and coordinate == "f32":
                values = sampler.interpolated(lanes, texture, points)
            else:
                values = sampler.nearest(lanes, texture, points)
            words = np.ascontiguousarray(values).view(result)
            for target, column in zip(targets, words.T, strict=False):
                target(lanes, column)

    return Operation(fetch)


@builder("suld", "sust")
def build_surface(instruction: Instruction, assembler: Assembler) -> Operation:
    """`suld.b` and `sust.b`; x counts bytes."""
    modifiers = Modifiers(instruction)
    writes = instruction.opcode == "sust"
    modifiers.need("b")
    shape = modifiers.need(*_SHAPES)
    count = {"v2": 2, "v4": 4}.get(modifiers.take("v2", "v4") or "", 1)
    element = _SURFACE_TYPES[modifiers.need(*_SURFACE_TYPES)]
    outside = modifiers.need("trap", "clamp", "zero")
    modifiers.rest = [each for each in modifiers.rest if each not in ("ca", "cg", "cs", "cv", "wb", "wt")]
    modifiers.done()
    sampler = _Sampler(instruction, assembler, 0 if writes else 1, shape)
    coordinates = [assembler.source(each, np.int32) for each in sampler.elements[: sampler.rank]]
    vector = instruction.operands[1 if writes else 0]
    sources = assembler.sources(vector, element) if writes else []
    targets = [] if writes else assembler.destinations(vector, element)
    size = count * np.dtype(element).itemsize
    machine = assembler.machine

    def access(active: Active) -> None:
        machine.last_effect = machine.steps if writes else machine.last_effect
        for lanes, surface in sampler.objects(active, surface=True):
            points = [np.broadcast_to(each(lanes), lanes.count).astype(np.int64) for each in coordinates]
            limits = (surface.width * surface.texel_bytes - size, *(each - 1 for each in surface.extents[1:]))
            inside = np.all([(each >= 0) & (each <= most) for each, most in zip(points, limits, strict=True)], axis=0)
            if outside == "trap" and not inside.all():
                raise _outside(sampler, lanes.where(~inside), surface, [int(each[~inside][0]) for each in points], size)
            if outside == "clamp":
                points = [np.clip(each, 0, most) for each, most in zip(points, limits, strict=True)]
                inside = np.ones(lanes.count, np.bool_)
            taken = lanes.where(inside)
            words = np.zeros((lanes.count, count), element)
            if inside.any():
                start = sampler.layer_start(taken, surface)
                places = _places(surface, [each[inside] for each in points], 1) + start + surface.address
                word = np.dtype(np.complex128) if size == 16 else np.dtype(f"u{size}")
                if writes:
                    data = np.stack([np.broadcast_to(each(taken), taken.count) for each in sources], axis=1)
                    stored = np.ascontiguousarray(data.astype(element)).view(word).reshape(-1)
                    machine.memory.store(instruction, taken, "global", places, stored, size)
                else:
                    loaded = machine.memory.load(instruction, taken, "global", places, size)
                    words[inside] = np.ascontiguousarray(loaded).view(element).reshape(taken.count, -1)
            for target, column in zip(targets, words.T, strict=not writes):
                target(lanes, column)

    return Operation(access)


def _outside(sampler: _Sampler, lanes: Active, surface: Texture, at: list[int], size: int) -> IllegalAddress:
    memory = sampler.machine.memory
    return IllegalAddress(
        f"{sampler.instruction.text}: {memory.thread(lanes.lanes[0])} accesses {size} bytes at byte {at[0]} of a row, "
        f"coordinates {tuple(at)} of a surface of {' x '.join(map(str, surface.extents))} elements of "
        f"{surface.texel_bytes} bytes; x counts bytes",
        kernel=memory.kernel,
        location=sampler.instruction.location,
    )
