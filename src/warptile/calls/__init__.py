"""Calls of `warptile.matmul` below its entrance: what was said, which kernel was chosen, the launch, held plans."""
