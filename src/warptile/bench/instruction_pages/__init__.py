"""A page for each instruction, with figures of its operands, and an index: ``warptile isa --html``."""
