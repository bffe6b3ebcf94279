"""Tensor-core and data-movement instructions, each described once, as data."""
