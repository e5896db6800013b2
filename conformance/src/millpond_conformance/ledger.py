"""The ledger: a file of known failures, clauses that a backend does not pass yet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path

import attrs
import cattrs
from millpond.config.option_sources import read_toml
from millpond.errors import ConfigError

from millpond_conformance.report import ClauseResult, Verdict
from millpond_conformance.specification import all_clauses

_LONGEST = timedelta(days=366)


@attrs.frozen
class KnownFailure:
    """A known failure of a clause.

    Attributes:
        clause: the number of the clause.
        reason: the reason for the failure, with a link to the issue if there is one.
        expires: the day from which the clause counts as failed again.
    """

    clause: str
    reason: str
    expires: date


def read_ledger(path: str | Path, today: date) -> dict[str, KnownFailure]:
    """Return the known failures in a TOML file, by clause number.

    The file has a table ``[[failure]]`` for each known failure.

    Args:
        path: the file.
        today: the date of the run.

    Raises:
        ConfigError: the file cannot be read, or an entry has an unknown clause, no reason, or an
            expiry date that is past or more than a year ahead.
    """
    place = str(path)
    try:
        tree = read_toml(path).tree
        converter = cattrs.Converter(forbid_extra_keys=True)
        converter.register_structure_hook(date, lambda value, _: value)
        entries = [converter.structure(entry, KnownFailure) for entry in tree.get("failure", [])]
    except ConfigError:
        raise
    except (ValueError, TypeError, AttributeError, cattrs.BaseValidationError) as error:
        raise ConfigError(place, f"it is not a ledger: {error}", "conformance") from error
    known = {clause.number for clause in all_clauses()}
    for entry in entries:
        if entry.clause not in known:
            raise ConfigError(entry.clause, "there is no clause of this number", place)
        if not entry.reason.strip():
            raise ConfigError(entry.clause, "give a reason", place)
        if type(entry.expires) is not date or entry.expires <= today:
            reason = f"the entry has expired on {entry.expires}: mend the backend"
            raise ConfigError(entry.clause, reason, place)
        if entry.expires - today > _LONGEST:
            reason = (
                f"the entry expires on {entry.expires}: a failure is known for a year at the most"
            )
            raise ConfigError(entry.clause, reason, place)
    return {entry.clause: entry for entry in entries}


def judged(result: ClauseResult, ledger: Mapping[str, KnownFailure]) -> ClauseResult:
    """Return `result` with the verdict that the ledger requires.

    If the clause is in the ledger, the verdict is CONDITIONAL instead of FAIL or ERROR, and XPASS
    instead of PASS. XPASS means that the entry should be removed from the ledger.
    """
    entry = ledger.get(result.number)
    if entry is None:
        return result
    if result.verdict in (Verdict.FAIL, Verdict.ERROR):
        message = f"known until {entry.expires}: {entry.reason}"
        return attrs.evolve(result, verdict=Verdict.CONDITIONAL, message=message)
    if result.verdict is Verdict.PASS:
        message = "it passes; take it out of the ledger"
        return attrs.evolve(result, verdict=Verdict.XPASS, message=message)
    return result
