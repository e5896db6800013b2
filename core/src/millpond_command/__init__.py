"""The entry point of the command ``millpond``, apart from the package, whose import takes long."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run a command and exit.

    An interrupt, also during imports, and a missing ``millpond-cli`` end it with a message.
    """
    try:
        from millpond_cli.main import main as run  # noqa: PLC0415 - to answer interrupts during the import

        run()
    except ModuleNotFoundError as error:
        if error.name not in ("millpond_cli", "millpond_cli.main"):
            raise
        how = "pip install 'millpond[cli]'"
        print(f"millpond: the command needs millpond-cli: {how}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    except KeyboardInterrupt:
        print("millpond: interrupted", file=sys.stderr)  # noqa: T201 - nothing else is there yet
        sys.exit(1)
