"""Wide programs: random programs that vary many properties at once, compared with a model.

A program is a list of steps. It runs in a world: the types, states, keys and settings that the
steps use. A seed determines both. If a program fails, steps are removed as long as it still fails,
and the rest is shown as Python code. A coverage counts how often each kind of step occurs.
"""

from millpond_conformance.wide.coverage import FLOORS, Coverage
from millpond_conformance.wide.player import play
from millpond_conformance.wide.shrinking import shrunk
from millpond_conformance.wide.steps import generate
from millpond_conformance.wide.world import World

__all__ = ["FLOORS", "Coverage", "World", "generate", "play", "shrunk"]
