"""What a plugin implements: the hook specs."""
