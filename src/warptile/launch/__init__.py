"""What to launch, as pure data: read by the GPU and by the emulator."""
