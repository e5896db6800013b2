"""Side outputs: further outputs of a function, each under a tag. Names are PyFlink's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeGuard

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import check_type
from millpond.state.names import check_label

T = TypeVar("T", default=Any)


def _check_id(_: OutputTag, __: Any, tag_id: str) -> None:
    check_type("tag_id", tag_id, str)
    check_label("tag_id", tag_id)


@attrs.frozen
class OutputTag(Generic[T]):
    """The name of a side output, to which a function yields by ``yield tag, row``.

    Two tags with the same name are equal.

    Args:
        tag_id: the name.
        type_info: the columns of the side output on Spark, as DDL or a StructType. None means the
            columns of the operator's input. Local runs ignore ``type_info``.
    """

    tag_id: str = attrs.field(validator=_check_id)
    type_info: Any = attrs.field(default=None, eq=False, repr=False)


def is_side_row(row: Any) -> TypeGuard[tuple[OutputTag, Any]]:
    """Return whether a yielded row is a pair of a tag and a row for the tag's side output."""
    return type(row) is tuple and len(row) == len(("tag", "row")) and type(row[0]) is OutputTag


def split_outputs(rows: Iterable[Any]) -> tuple[list[Any], list[tuple[OutputTag, Any]]]:
    """Return the main output's rows among ``rows``, and the pairs of tag and row."""
    main: list[Any] = []
    side: list[tuple[OutputTag, Any]] = []
    for row in rows:
        if is_side_row(row):
            side.append(row)
        else:
            main.append(row)
    return main, side


class Output(list[T]):
    """The output of a local run: a list of the main output's rows, with the side outputs.

    Attributes:
        side_outputs: the rows of side outputs, by the tag's name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.side_outputs: dict[str, list[Any]] = {}

    def side_output(self, tag: OutputTag) -> list[Any]:
        """Return the rows of a side output."""
        check_type("tag", tag, OutputTag)
        return self.side_outputs.get(tag.tag_id, [])

    get_side_output = side_output  # PyFlink's name

    @override
    def extend(self, rows: Iterable[T]) -> None:
        """Add each row to the main output or to its side output, in turn.

        If iterating ``rows`` fails, the rows before the failure remain.
        """
        for row in rows:
            if is_side_row(row):
                self.side_outputs.setdefault(row[0].tag_id, []).append(row[1])
            else:
                self.append(row)
