"""XLA's foreign function interface: a function that XLA calls inside a program, with its stream and its buffers.

The structures are those of ``xla/ffi/api/c_api.h`` (API version 0), as far as they are read here. XLA sizes and extends
them at their ends only, so that what is read stays where it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

METADATA_EXTENSION = 1
EXECUTE_STAGE = 3
INTERNAL = 13
"""``XLA_FFI_Error_Code_INTERNAL``."""


class _Extension(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("type", c_int), ("next", c_void_p))


class _Version(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int))


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32))


class _MetadataExtension(ctypes.Structure):
    _fields_ = (("base", _Extension), ("metadata", POINTER(_Metadata)))


class _ErrorCreate(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int))


class _StreamGet(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("extension", c_void_p), ("context", c_void_p), ("stream", c_void_p))


class _OrdinalGet(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("extension", c_void_p), ("context", c_void_p), ("ordinal", c_int32))


class _Api(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("version", _Version), ("internal", c_void_p),
        ("error_create", CFUNCTYPE(c_void_p, c_void_p)), ("error_get_message", c_void_p),
        ("error_destroy", c_void_p), ("handler_register", c_void_p),
        ("stream_get", CFUNCTYPE(c_void_p, c_void_p)), ("type_register", c_void_p), ("context_get", c_void_p),
        ("state_set", c_void_p), ("state_get", c_void_p), ("memory_allocate", c_void_p), ("memory_free", c_void_p),
        ("pool_schedule", c_void_p), ("pool_threads", c_void_p), ("future_create", c_void_p),
        ("future_available", c_void_p), ("future_error", c_void_p), ("run_id_get", c_void_p),
        ("ordinal_get", CFUNCTYPE(c_void_p, c_void_p)),
    )  # fmt: skip


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("dtype", c_int), ("data", c_void_p), ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    )  # fmt: skip


class _Scalar(ctypes.Structure):
    _fields_ = (("dtype", c_int), ("value", POINTER(c_int64)))


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("size", c_int64), ("types", c_void_p),
        ("each", c_void_p),
    )  # fmt: skip


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("size", c_int64), ("types", c_void_p),
        ("names", c_void_p), ("each", c_void_p),
    )  # fmt: skip


class _Text(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("size", c_size_t))


_DATA, _VALUE, _SIZE = _Buffer.data.offset, _Scalar.value.offset, _Text.size.offset
_NOTHING = c_uint64()
_NOWHERE = ctypes.addressof(_NOTHING)
"""Where an array of no element may begin."""


class CallFrame(ctypes.Structure):
    """``XLA_FFI_CallFrame``: what a handler is called with."""

    _fields_ = (
        ("struct_size", c_size_t), ("extension", POINTER(_Extension)), ("api", POINTER(_Api)), ("context", c_void_p),
        ("stage", c_int), ("arguments", _Buffers), ("results", _Buffers), ("attributes", _Attributes),
    )  # fmt: skip


Handler = CFUNCTYPE(c_void_p, POINTER(CallFrame))
"""``XLA_FFI_Error *handler(XLA_FFI_CallFrame *)``."""


@dataclass(frozen=True, slots=True)
class XlaPlace:
    """Where a call of a handler works.

    Attributes:
        ordinal: CUDA ordinal.
        stream: handle of the stream on which the arguments are ready and the results are waited for.
    """

    ordinal: int
    stream: int


class XlaError(Exception):
    """XLA refused to say something; ``error`` is its own error, which a handler returns."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


def place_of(frame: CallFrame) -> XlaPlace:
    """The stream and the GPU of a call.

    Raises:
        XlaError: the program runs on no GPU.
    """
    ask_stream, ask_ordinal = _questions(ctypes.addressof(frame.api.contents))
    stream = _StreamGet(ctypes.sizeof(_StreamGet), None, frame.context, None)
    ordinal = _OrdinalGet(_OrdinalGet.ordinal.offset + 4, None, frame.context, -1)
    error = ask_stream(ctypes.addressof(stream)) or ask_ordinal(ctypes.addressof(ordinal))
    if error:
        raise XlaError(error)
    return XlaPlace(ordinal.ordinal, stream.stream or 0)


@cache
def _questions(api: int) -> tuple[Callable[[int], int | None], Callable[[int], int | None]]:
    """XLA's functions that tell a stream and an ordinal. XLA has one table of functions, which never goes."""
    found = _Api.from_address(api)
    return found.stream_get, found.ordinal_get


def integer(frame: CallFrame) -> int:
    """The only attribute of a call, an int64."""
    return c_int64.from_address(_word(_word(frame.attributes.each) + _VALUE)).value


def text(frame: CallFrame) -> bytes:
    """The only attribute of a call, a string."""
    span = _word(frame.attributes.each)
    return ctypes.string_at(_word(span), _word(span + _SIZE))


def no_place(frame: CallFrame) -> None:
    """The place of a call in host memory, which has neither stream nor ordinal."""


def handler(
    call: Callable[[Any, Any, Sequence[int], Sequence[int]], None],
    where: Callable[[CallFrame], XlaPlace | None] = place_of,
    attribute: Callable[[CallFrame], int | bytes] = integer,
) -> Any:
    """A handler with one attribute.

    Args:
        call: called with the attribute, the place, and the addresses of arguments and results. On a GPU it queues work
            and does not wait for it; what it raises becomes the program's error.
        where: finds the place.
        attribute: reads the attribute.

    Returns:
        The handler as a C function, to be kept alive for as long as XLA may call it.
    """

    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        try:
            if frame.extension and frame.extension.contents.type == METADATA_EXTENSION:
                return _describe(frame)
            if frame.stage != EXECUTE_STAGE:
                return None
            call(attribute(frame), where(frame), _addresses(frame.arguments), _addresses(frame.results))
        except XlaError as refused:
            return refused.error
        except BaseException as error:  # must not reach C; it becomes XLA's error
            return _error(frame, f"{type(error).__name__}: {error}")
        return None

    return Handler(handle)


def _describe(frame: CallFrame) -> int | None:
    """Fill in the API version, at registration. No trait is set: launches go through Python and depend on tables."""
    extension = ctypes.cast(frame.extension, POINTER(_MetadataExtension)).contents
    metadata, version = extension.metadata.contents, frame.api.contents.version
    if version.major != 0 or frame.api.contents.struct_size < ctypes.sizeof(_Api):
        return _error(frame, f"warptile knows XLA's FFI of version 0 with device ordinals, not {version.major}")
    metadata.version.major, metadata.version.minor = version.major, version.minor
    metadata.traits = 0
    return None


def _word(address: int) -> int:
    """The pointer at an address. (A pointer type of ctypes would cost several times as much to follow.)"""
    return c_uint64.from_address(address).value


def _addresses(buffers: _Buffers) -> list[int]:
    return [_word(buffer + _DATA) for buffer in (c_uint64 * buffers.size).from_address(buffers.each or _NOWHERE)]


def _error(frame: CallFrame, message: str) -> int | None:
    if not frame.api:  # older versions describe handlers without: they find no version, and refuse it
        return None
    given = _ErrorCreate(_ErrorCreate.code.offset + 4, None, message.encode(), INTERNAL)
    made: int | None = frame.api.contents.error_create(ctypes.addressof(given))
    return made
