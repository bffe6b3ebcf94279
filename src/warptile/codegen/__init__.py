"""From a kernel's configuration to a translation unit, to NVRTC, to a cubin and PTX cached on disk."""
