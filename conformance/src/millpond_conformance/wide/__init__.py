"""Wide programs: generated programs that vary many things at once, compared with a model.

A program is a list of steps in a world: types, states, keys and settings, which are drawn from a
seed. Because a program is data, a failing one can be shortened, and pasted as code. Coverage counts
how often each kind of step occurs.
"""

from millpond_conformance.wide.coverage import FLOORS, Coverage
from millpond_conformance.wide.player import play
from millpond_conformance.wide.shrinking import shrunk
from millpond_conformance.wide.steps import generate
from millpond_conformance.wide.world import World

__all__ = ["FLOORS", "Coverage", "World", "generate", "play", "shrunk"]
