"""What pytest loads wherever the kit is installed: one option, one ini key, and nothing else.

The fixtures, markers and parametrization of the clauses stand in ``millpond_conformance.fixtures``,
which is loaded where somebody asks for the clauses: by ``--millpond-backend``, or by naming
``millpond_conformance`` among what is to be run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


OPTION = "--millpond-backend"
INI = "millpond_conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the ini key."""
    parser.addoption(
        OPTION,
        action="append",
        default=[],
        metavar="NAME",
        help="run Millpond's contract tests against this backend (default: all that are usable)",
    )
    parser.addini(
        INI,
        "how Millpond's contract tests run: profile=quick, wrapped=both, seed=7",
        type="args",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the rest where it is asked for."""
    asked = [*map(str, config.args), *map(str, config.invocation_params.args)]
    if config.getoption(OPTION) or any("millpond_conformance" in word for word in asked):
        config.pluginmanager.import_plugin("millpond_conformance.fixtures")
