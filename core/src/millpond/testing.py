"""``millpond.testing``: what unit tests of keyed functions need."""

from millpond.runtime.harness import KeyedOperatorHarness

__all__ = ["KeyedOperatorHarness"]
