"""How long a launch should take on the GPU that was measured: a model of time and clock, calibrated to records."""
