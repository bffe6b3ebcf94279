"""The float64 reference, error bounds and guard bands."""
