"""The core's own plugins: the raw states, TTL, state metrics, checkpoints, reporters."""
