"""Exact arithmetic: IEEE rounding, small float formats, and the adder of a tensor core."""
