"""Where the process of ``millpond`` begins: beside the package, which takes long to import."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run a command and exit; an interrupt ends it with a sentence, during imports too.

    So does a missing ``millpond-cli``.
    """
    try:
        from millpond_cli.main import main as run  # noqa: PLC0415 - so that it can be interrupted

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
