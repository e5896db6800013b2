"""A wrapper of states that samples the latencies and sizes of operations."""
