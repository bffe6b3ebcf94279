"""The libraries that kernels are compared with."""
