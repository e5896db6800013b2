"""On which lines of a TOML file its keys stand; the standard library's parser does not say."""

from __future__ import annotations

import re
import tomllib

KeyPath = tuple[str, ...]

_TOKEN = re.compile(
    r"""
      (?P<newline>\n)
    | (?P<space>[ \t\r]+|\#[^\n]*)
    | (?P<string>
          \"{3}(?:\\.|(?!\"{3})[^\\])*\"{3,5} | '{3}(?:(?!'{3}).)*'{3,5}
        | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
    | (?P<mark>[\[\]{}=,.])
    | (?P<bare>[^\s\[\]{}=,.\#"']+)
    """,
    re.VERBOSE | re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """The keys and tables of a valid TOML text, each with the line of its first mention."""
    scan = _Scan()
    line = 1
    for found in _TOKEN.finditer(text + "\n"):
        if found.lastgroup != "space":
            scan.take(found.lastgroup or "", found.group(), line)
        line += found.group().count("\n")
    return scan.lines


class _Scan:
    """Goes through the tokens; knows whether a key or a value comes next, and in what."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._table: KeyPath = ()
        self._path: KeyPath = ()
        self._parts: list[str] = []
        self._open: list[KeyPath | None] = []  # inline tables by their path; None is an array
        self._in_key = True
        self._in_header = False

    def take(self, kind: str, piece: str, line: int) -> None:
        if kind == "newline":
            self._end_line(line)
        elif kind == "mark":
            self._mark(piece, line)
        elif self._in_key:
            self._parts.append(_plain(piece) if kind == "string" else piece)

    def _end_line(self, line: int) -> None:
        if self._in_header:
            self._table = self._named((), line)
            self._in_header = False
        if not self._open:
            self._in_key = True

    def _mark(self, mark: str, line: int) -> None:
        if self._in_key and not self._open and mark == "[":
            self._in_header = True
        elif self._in_key and mark == "=":
            base = self._open[-1] if self._open else self._table
            self._path = self._named(base or (), line)
            self._in_key = False
        elif not self._in_key or mark == "}":
            self._bracket(mark)

    def _bracket(self, mark: str) -> None:
        if mark in "[{":
            self._open.append(self._path if mark == "{" else None)
            self._in_key = mark == "{"
        elif mark in "]}" and self._open:
            self._open.pop()
            self._in_key = False
        elif mark == "," and self._open:
            self._in_key = self._open[-1] is not None

    def _named(self, base: KeyPath, line: int) -> KeyPath:
        path = (*base, *self._parts)
        self._parts = []
        self.lines.setdefault(path, line)
        return path


def _plain(quoted: str) -> str:
    value = tomllib.loads(f"x = {quoted}")["x"]
    return str(value)
