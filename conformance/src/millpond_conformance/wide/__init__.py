"""Wide programs: generated programs that vary many things at once, compared with a model.

A program is data, a list of steps over a world that its seed decides, so that it can be shrunk and
pasted. Coverage counts the steps of the programs.
"""

from millpond_conformance.wide.coverage import FLOORS, Coverage
from millpond_conformance.wide.player import play
from millpond_conformance.wide.shrinking import shrunk
from millpond_conformance.wide.steps import generate
from millpond_conformance.wide.world import World

__all__ = ["FLOORS", "Coverage", "World", "generate", "play", "shrunk"]
