"""How fast the emulator is: kernels of different kinds, emulated with and without checks."""
