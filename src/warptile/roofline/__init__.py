"""Rooflines: published peaks of GPUs, recorded rungs as points below them, and the figures drawn of both."""
