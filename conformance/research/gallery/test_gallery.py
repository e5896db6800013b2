"""Tests of the gallery: each member's demonstration fails with it, and passes with the unchanged backend."""

from contextlib import ExitStack

import pytest

from conformance.research.gallery import gallery

MEMBERS = gallery.load()


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", MEMBERS)
def test_each_is_wrong(name):
    """Each demonstration fails with the wrong backend and passes with the unchanged one."""
    member = MEMBERS[name]
    with ExitStack() as stack:
        member.show(gallery.room(stack, gallery.original(member.base)))
    with ExitStack() as stack, pytest.raises(AssertionError):
        member.show(gallery.room(stack, f"{gallery.__name__}:w_{name}"))
