"""Tests that cross distributions; helpers are imported by their path from the root."""
