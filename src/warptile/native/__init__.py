"""Machine code made by LLVM, through llvmlite, which comes with Numba: no compiler has to be installed."""
