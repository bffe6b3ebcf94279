"""Searches for the fastest configuration of a kernel."""
