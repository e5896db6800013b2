"""``millpond.testing``: what unit tests of keyed functions need."""

from millpond.local.harness import KeyedOperatorHarness

__all__ = ["KeyedOperatorHarness"]
