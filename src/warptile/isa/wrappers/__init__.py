"""Generates the CUDA C++ wrappers of tensor-core instructions."""
