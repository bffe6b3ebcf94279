"""Race detection and the other checks that observe memory and synchronization events."""
