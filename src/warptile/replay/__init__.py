"""A recorded launch with clocks: when each warp would have done what, on one SM or on those of a cluster."""
