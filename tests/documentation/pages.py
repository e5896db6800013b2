"""Helpers to run the Python blocks of a page in a Spark session."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def text(page):
    """Return the text of a page."""
    return (DOCS / page).read_text()


def run(page, kind, space):
    """Run a page's blocks of one kind, and of the kind `sh run`, and compare their output or refusal.

    A block of the language ``output`` may follow with the printed lines, or one of the language
    ``refused`` with the expected error.
    """
    for language, code, follows, expected in blocks(page, kind):
        if language == "sh run":
            printed = in_shell(code)
            assert not follows or printed == expected
            continue
        compiled = compile(code, page, "exec")
        if follows == "refused":
            with pytest.raises(Exception, match=re.escape(expected.strip("\n"))):
                exec(compiled, space)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compiled, space)
        assert not follows or printed.getvalue() == expected


def in_shell(commands):
    """Run commands as a user of this environment would; return the printed lines."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks(page, kind):
    """Return a page's blocks of one kind, and of the kind `sh run`.

    Each has its language and its code, and the kind and the text of the block that follows.
    """
    block = re.compile(
        rf"```(python {kind}|sh run)\n(.*?)```\n(?:[^`#]*```(refused|output)\n(.*?\n)```)?",
        re.DOTALL,
    )
    found = block.findall(text(page))
    marks = re.findall(rf"^```(?:python {kind}|sh run)$", text(page), re.MULTILINE)
    assert len(found) == len(marks) > 0
    return found


def sections(content):
    """Return the sections of a page by their anchors."""
    for section in content.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        yield re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"), body


def links(content):
    """Return the targets of a page's links."""
    return re.findall(r"\]\(([^)]+)\)", content)
