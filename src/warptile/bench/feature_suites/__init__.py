"""Suites of what goes beyond one GEMM of two plain operands: each has rows, goals, a record and a table."""
