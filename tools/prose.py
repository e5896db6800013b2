"""Count hard-to-read idioms in docstrings, comments, messages and docs, and fail above a limit.

    python tools/prose.py [--list] [--limit 2.0] PATH...

Each pattern needs a second reading or hides its subject. CONTRIBUTING.md has the rule.
The limit is in hits per 1,000 words, for each kind of text. Code does not count.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOTS = [
    "core/src", "spark/src", "cli/src", "plugins", "conformance/src", "benchmarks", "examples",
    "tools", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md",
]  # fmt: skip
PLACES = (
    r"(?<!line )(?<!lines )(?<!file )(?<!files )(?<!place )(?<!places )(?<!path )(?<!folder )"
    r"(?<!directory )(?<!position )(?<!point )(?<!page )(?<!address )(?<!from )(?<!know )"
)
PATTERNS = {
    "noun clauses with 'what'": r"\bwhat\b(?! to\b)(?![^.?]*\?)",
    "'where' for 'if' or 'when'": PLACES + r"\bwhere\b(?! to\b)(?![^.?]*\?)",
    "stands, lies, stays": r"\b(?:stands?|stood|lies?|lay|stays?|stayed)\b",
    "anew, beside, alike, meanwhile": r"\b(?:anew|besides?|alike|meanwhile)\b",
    "nobody, whoever, whatever": r"\b(?:nobody|whoever|whatever)\b",
    "sentence without a subject": r"(?:^|(?<=[.:!?]\s))(?:Those of|That of|Of|The same|One that)\b",
    "is told, tells": r"\b(?:told|tells?)\b",
    "'Have X do Y', so many": r"^Have \w+|\bso (?:many|much)\b",
}
COMPILED = {
    name: re.compile(pattern, 0 if "[.:" in pattern or "Have" in pattern else re.IGNORECASE)
    for name, pattern in PATTERNS.items()
}
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
CODE_SPAN = re.compile(r"``[^`]+``|`[^`]+`")
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
SQL = re.compile(
    r"\b(?:select|from)\b.*\bwhere\b|\bwhere \w+ (?:=|!=|is)", re.IGNORECASE | re.DOTALL
)
Text = tuple[str, int, str]  # kind, first line, text


@dataclass
class Hit:
    """One idiom at one place."""

    file: Path
    line: int
    kind: str
    pattern: str
    excerpt: str


def python_texts(source: str) -> Iterator[Text]:
    """Yield the docstrings, comments and messages of a Python source."""
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False):
            docstring = node.body[0].value
            docstrings.add(docstring)
            yield "docstrings", docstring.lineno, docstring.value
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_message = len(WORD.findall(node.value)) >= 4 and node not in docstrings  # noqa: PLR2004
            if is_message and not SQL.search(node.value):
                yield "messages", node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            yield "comments", token.start[0], token.string.lstrip("# ")


def markdown_texts(source: str) -> Iterator[Text]:
    """Yield the paragraphs of a Markdown page without fenced code."""
    fenced, start, lines = False, 1, []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif line.strip() and not fenced:
            start = start if lines else number
            lines.append(line)
            continue
        if lines:
            yield "docs", start, "\n".join(lines)
            lines = []


def texts(path: Path) -> Iterator[Text]:
    """Yield each text of a file with its kind and first line."""
    source = path.read_text(encoding="utf-8")
    yield from python_texts(source) if path.suffix == ".py" else markdown_texts(source)


def hits(path: Path, kind: str, line: int, text: str) -> Iterator[Hit]:
    """Yield the idioms in one text."""
    plain = CODE_SPAN.sub(lambda span: "x" + "\n" * span[0].count("\n"), text)
    for name, pattern in COMPILED.items():
        for match in pattern.finditer(plain):
            at = line + plain.count("\n", 0, match.start())
            around = plain[max(0, match.start() - 30) : match.end() + 40]
            yield Hit(path, at, kind, name, " ".join(around.split()))


def files(paths: list[str]) -> Iterator[Path]:
    """Yield the Python and Markdown files under the paths."""
    for path in map(Path, paths):
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        skipped = {"build", "out", "tests", "prose.py"} if path.is_dir() else set()
        yield from (f for f in found if f.suffix in {".py", ".md"} and not skipped & set(f.parts))


def main() -> int:
    """Print the rate of each kind of text; return 1 if one is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", default=ROOTS)
    parser.add_argument("--list", action="store_true", help="print every hit")
    parser.add_argument("--limit", type=float, default=2.0, help="hits per 1,000 words")
    options = parser.parse_args()
    words: Counter[str] = Counter()
    found: dict[str, list[Hit]] = defaultdict(list)
    for path in files(options.paths):
        for kind, line, text in texts(path):
            words[kind] += len(WORD.findall(CODE_SPAN.sub("x", text)))
            found[kind] += hits(path, kind, line, text)
    failed = False
    for kind in sorted(words):
        rate = 1000 * len(found[kind]) / max(1, words[kind])
        too_high = rate > options.limit
        failed = failed or too_high
        print(f"{kind}: {rate:.1f} per 1,000 words ({len(found[kind])} in {words[kind]:,})")
        if too_high or options.list:
            for hit in found[kind]:
                print(f"  {hit.file}:{hit.line}: {hit.pattern}: … {hit.excerpt} …")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
