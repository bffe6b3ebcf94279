"""Machine code of the stand-in library: each function sends its arguments over a socket and returns what comes back.

A call connects to a Unix socket in the abstract namespace, sends a `FRAME` and reads a `REPLY`, which returns from the
call, makes a system call in the calling process, or calls one of its functions; after the latter two the result is sent
and the next reply read. The library has no state and no dependency, so it works before `main`, in threads and after
`fork`. Calling convention: System V Application Binary Interface, AMD64 Architecture Processor Supplement.
"""

from __future__ import annotations

import platform
import struct

from warptile.errors import UnsupportedError

SLOT_BYTES = 16
"""Every function begins at a multiple of it, in order."""

FRAME = struct.Struct("<9Q")
"""Number of the function (or the result of what a reply asked for), six integer arguments, the frame pointer (arguments
on the stack begin 16 bytes above it), and the first floating-point argument."""

REPLY = struct.Struct("<8Q")
"""What to do, and its operands: `RETURN` a value; `SYSTEM_CALL` of a number with six arguments; `CALL` an address with
three."""

RETURN, SYSTEM_CALL, CALL = range(3)

FAILED = 999
"""What a call returns when nobody answers: ``cudaErrorUnknown``."""

_TEXT = """
.intel_syntax noprefix
.text
{functions}
.p2align 4
call_server:
  push rbp
  mov rbp, rsp
  push rbx
  push r12
  sub rsp, 160
  mov [rsp], rax
  mov [rsp+8], rdi
  mov [rsp+16], rsi
  mov [rsp+24], rdx
  mov [rsp+32], rcx
  mov [rsp+40], r8
  mov [rsp+48], r9
  mov [rsp+56], rbp
  movq [rsp+64], xmm0
  mov eax, 41               # socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)
  mov edi, 1
  mov esi, 0x80001
  xor edx, edx
  syscall
  mov rbx, rax
  test rax, rax
  js failed
  mov eax, 42               # connect
  mov edi, ebx
  lea rsi, [rip + address]
  mov edx, {address_bytes}
  syscall
  test rax, rax
  jnz close_failed
send:
  mov eax, 44               # sendto(socket, frame, size, MSG_NOSIGNAL)
  mov edi, ebx
  mov rsi, rsp
  mov edx, {frame_bytes}
  mov r10d, 0x4000
  xor r8d, r8d
  xor r9d, r9d
  syscall
  cmp rax, -4
  je send
  cmp rax, {frame_bytes}
  jne close_failed
receive:
  mov eax, 45               # recvfrom(socket, reply, size, MSG_WAITALL)
  mov edi, ebx
  lea rsi, [rsp+80]
  mov edx, {reply_bytes}
  mov r10d, 0x100
  xor r8d, r8d
  xor r9d, r9d
  syscall
  cmp rax, -4
  je receive
  cmp rax, {reply_bytes}
  jne close_failed
  mov rax, [rsp+80]
  cmp rax, {system_call}
  je system
  cmp rax, {call}
  je callback
  mov r12, [rsp+88]
close:
  mov eax, 3
  mov edi, ebx
  syscall
  mov rax, r12
leave_call:
  add rsp, 160
  pop r12
  pop rbx
  pop rbp
  ret
system:
  mov rax, [rsp+88]
  mov rdi, [rsp+96]
  mov rsi, [rsp+104]
  mov rdx, [rsp+112]
  mov r10, [rsp+120]
  mov r8, [rsp+128]
  mov r9, [rsp+136]
  syscall
  mov [rsp], rax
  jmp send
callback:
  mov rdi, [rsp+96]
  mov rsi, [rsp+104]
  mov rdx, [rsp+112]
  call [rsp+88]
  mov [rsp], rax
  jmp send
close_failed:
  mov r12d, {failed}
  jmp close
failed:
  mov eax, {failed}
  jmp leave_call
address:
  .short 1
  .byte 0
  .ascii "{name}"
"""


def machine_code(numbers: range, socket: str) -> bytes:
    """Code of functions, each `SLOT_BYTES` behind the one before.

    Args:
        numbers: of the functions, which they send.
        socket: name of the socket in the abstract namespace.

    Raises:
        UnsupportedError: this is no x86-64 Linux.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UnsupportedError(
            f"whole programs are emulated on x86-64 Linux, and this is {platform.system()} on {platform.machine()}; "
            f"single kernels are emulated everywhere: warptile emulate kernel.cu"
        )
    slots = "\n".join(f".p2align 4\n  mov eax, {number}\n  jmp call_server" for number in numbers)
    text = _TEXT.format(
        functions=slots, address_bytes=3 + len(socket), frame_bytes=FRAME.size, reply_bytes=REPLY.size, failed=FAILED,
        system_call=SYSTEM_CALL, call=CALL, name=socket,
    )  # fmt: skip
    return _assembled(text)


def _assembled(text: str) -> bytes:
    """The code section of assembly without references to anything outside of it, by LLVM's assembler."""
    from llvmlite import binding as llvm

    from warptile.programs.elf_file import ElfFile

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    lines = "\n".join(f'module asm "{line}"' for line in text.replace("\\", "\\5C").replace('"', "\\22").splitlines())
    module = llvm.parse_assembly(f'target triple = "x86_64-unknown-linux-gnu"\n{lines}\n')
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine()
    return ElfFile(machine.emit_object(module)).section(".text")
