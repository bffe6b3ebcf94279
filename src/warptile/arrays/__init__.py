"""Callers' arrays: what they are, what they mean as a GEMM, and 2:4 sparse weights."""
