"""The raw states, written once against tables."""
