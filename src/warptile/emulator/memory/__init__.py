"""State spaces: bytes with a shadow, addresses, and the checks on every access."""
