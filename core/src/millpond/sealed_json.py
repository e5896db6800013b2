"""Sealed JSON: small files that contain the digest of their content."""

from __future__ import annotations

import hashlib
import json

import attrs

from millpond.errors import CorruptSnapshotError
from millpond.safe_decoding import decoding, parse_json

_DIGEST = "sha256"


@attrs.frozen
class SealedJson:
    """One kind of sealed file: a JSON object with a digest and a body.

    Attributes:
        what: the name of the kind in errors, such as ``a savepoint``.
        field: the name of the body in the object.
        readable: whether the body is indented JSON, which users may read and edit; otherwise it is
            a string with any content.
        hint: a text that is added to the error about a wrong digest.
    """

    what: str
    field: str = "content"
    readable: bool = False
    hint: str = ""

    def seal(self, text: str) -> bytes:
        """Return the bytes of a file with the body ``text`` and its digest.

        If the body is readable, ``text`` must be JSON with an indent of 1.
        """
        body = json.loads(text) if self.readable else text
        tree = {_DIGEST: _digest(text), self.field: body}
        return json.dumps(tree, indent=1 if self.readable else None).encode()

    def unseal(self, data: bytes, path: str) -> str:
        """Return the body of a file, as it was passed to :meth:`seal`.

        Args:
            data: the file's bytes, which are not trusted.
            path: the file, for errors.

        Raises:
            CorruptSnapshotError: the data is damaged, or is not a file of this kind.
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
