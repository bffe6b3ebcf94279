"""Running a plan: which backend, and operands in its memory."""
