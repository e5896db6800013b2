"""Sampled latencies and sizes of state operations, as a wrapper around any state."""
