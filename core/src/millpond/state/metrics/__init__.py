"""Sampled latencies of state operations, as a wrapper around any state."""
