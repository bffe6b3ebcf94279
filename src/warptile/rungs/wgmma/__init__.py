"""The Hopper rungs: wgmma and TMA."""
