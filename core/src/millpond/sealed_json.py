"""Sealed JSON: small files that carry the digest of what they say; one writer and one reader."""

from __future__ import annotations

import hashlib
import json

import attrs

from millpond.errors import CorruptSnapshotError
from millpond.safe_decoding import decoding, parse_json

_DIGEST = "sha256"


@attrs.frozen
class SealedJson:
    """One sort of sealed file: a JSON object of a digest and a body.

    Attributes:
        what: what errors call such a file, as in ``a savepoint``.
        field: the name under which the body stands.
        readable: whether the body stands there as indented JSON for people to read and edit; if
            not, it is a text in the JSON, and any text will do.
        hint: what errors add where the digest is wrong.
    """

    what: str
    field: str = "content"
    readable: bool = False
    hint: str = ""

    def seal(self, text: str) -> bytes:
        """The file of a body; a readable body must be JSON with an indent of 1."""
        body = json.loads(text) if self.readable else text
        tree = {_DIGEST: _digest(text), self.field: body}
        return json.dumps(tree, indent=1 if self.readable else None).encode()

    def unseal(self, data: bytes, path: str) -> str:
        """The body of such a file, as it was given to :meth:`seal`.

        Args:
            data: the file's bytes, which are untrusted.
            path: the file, for errors.

        Raises:
            CorruptSnapshotError: the data is damaged, or is something else.
        """
        with decoding(path, f"it is not {self.what}"):
            tree = parse_json(data)
            if not isinstance(tree, dict) or not tree.keys() >= {self.field, _DIGEST}:
                raise ValueError(f"expected a JSON object of {self.field!r} and {_DIGEST!r}")
            body, digest = tree[self.field], tree[_DIGEST]
            text = json.dumps(body, indent=1) if self.readable else body
            found = _digest(text)
        if found != digest:
            raise CorruptSnapshotError(path, f"its digest is wrong{self.hint}")
        return str(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
