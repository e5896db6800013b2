"""Time to live, as a wrapper around any state."""
