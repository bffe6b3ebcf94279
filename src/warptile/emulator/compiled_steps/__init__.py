"""Runs of plain instructions as machine code, in the place of the interpreter where that changes nothing but the time.

What an instruction means is said by the interpreter (`warptile.emulator.ops`); here is a faster way to do the common
ones. Compiled code works on the same registers, memory, shadows, histories and counters, instruction by instruction and
in the same order. Where it meets something unusual, it stops before it has changed anything, and the interpreter
executes that instruction: every error, and every finding, is the interpreter's.

Nothing is compiled for a kernel. Each instruction becomes a record that names one of a fixed set of loops over lanes,
which are compiled once a machine and kept in the cache on disk.
"""
