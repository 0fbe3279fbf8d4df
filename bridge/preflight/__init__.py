"""What is checked before the bridge starts, and the rights that it needs at start and later."""
