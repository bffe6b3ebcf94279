"""Asynchronous operations: queued when issued, retired by a schedule."""
