"""The pytest plugin that is loaded in every project. It adds one option and one ini key.

``millpond_conformance.fixtures`` has the fixtures, markers and parametrization of the clauses. It
is loaded only if the option ``--millpond-backend`` is given, or if pytest's arguments name
``millpond_conformance``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


OPTION = "--millpond-backend"
INI = "millpond_conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--millpond-backend`` and the ini key ``millpond_conformance``."""
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
    """Load ``millpond_conformance.fixtures`` if the run may include clauses."""
    asked = [*map(str, config.args), *map(str, config.invocation_params.args)]
    if config.getoption(OPTION) or any("millpond_conformance" in word for word in asked):
        config.pluginmanager.import_plugin("millpond_conformance.fixtures")
