"""The positions of a Spark query's sources, from the query's offset log.

``offsets/<batch>`` is a text: a version, a line of JSON with the watermark, and one line for each
source with its position after the batch. ``sources/<number>/`` lists the files that a file source
has read.
"""

from __future__ import annotations

from typing import Any

import attrs
from millpond.arguments import check_type
from millpond.errors import ConfigError, CorruptSnapshotError
from millpond.safe_decoding import decoding, exact_int, exact_text, parse_json
from millpond.snapshots.spark_checkpoint import last_batch, planned_batches
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from typing_extensions import override


@attrs.frozen
class SourcePosition:
    """The position after the last committed batch of one source of a query.

    Attributes:
        number: the number of the source in the query, from 0.
        offset: the position as Spark writes it, a JSON text; ``-`` if the source was never read.
        options: the reader's options with which a new query starts at this position.
        files: the URIs of the files that were read; None if the source does not read files.
        advice: a sentence that says how to start the new query.
    """

    number: int
    offset: str
    options: dict[str, str]
    files: tuple[str, ...] | None
    advice: str

    def unread(self, df: DataFrame) -> DataFrame:
        """Return the rows of the files that the old query has not read.

        Args:
            df: the new query's stream of files, directly from ``spark.readStream``.

        Raises:
            ConfigError: the source does not read files.
        """
        check_type("df", df, DataFrame)
        if self.files is None:
            raise ConfigError("source", f"it does not read files; {self.advice}", "unread(...)")
        read = [(_scheme_and_path(file),) for file in self.files]
        known = df.sparkSession.createDataFrame(read, "file string")
        path = F.regexp_replace("_metadata.file_path", r"^file:/+", "file:/")
        marked = df.withColumn(_FILE, path)
        return marked.join(F.broadcast(known), F.col(_FILE) == known.file, "left_anti").drop(_FILE)


_FILE = "__millpond_file"


@attrs.frozen
class QueryPositions:
    """The positions of all sources of a query after its last committed batch.

    Attributes:
        batch_id: the last committed batch.
        watermark_ms: the watermark of that batch in ms since 1970; 0 if there was none.
        sources: the position of each source.
        uncommitted: whether a later batch has begun, whose rows may already be in the sink.
    """

    batch_id: int
    watermark_ms: int
    sources: tuple[SourcePosition, ...]
    uncommitted: bool

    @override
    def __str__(self) -> str:
        lines = [f"batch {self.batch_id} is the last committed batch"]
        lines += [f"source {source.number}: {source.advice}" for source in self.sources]
        if self.uncommitted:
            lines.append(
                f"batch {self.batch_id + 1} has begun: its rows may already be in the sink. Start "
                "the old query again until it commits the batch, and then migrate again"
            )
        return "\n".join(lines)


def read_positions(checkpoint: CheckpointStorage) -> QueryPositions:
    """Return the positions of a query's sources after its last committed batch.

    Args:
        checkpoint: the query's ``checkpointLocation``.

    Raises:
        RestoreError: the query has not committed a batch yet.
        CorruptSnapshotError: the offset log cannot be read.
    """
    batch = last_batch(checkpoint)
    path = f"offsets/{batch}"
    header, *offsets = _lines(checkpoint, path)
    with decoding(_where(checkpoint, path), "it is not a log of offsets"):
        watermark = exact_int(_fields(header)["batchWatermarkMs"], int)
        sources = [_position(number, line, checkpoint) for number, line in enumerate(offsets)]
    uncommitted = any(planned > batch for planned in planned_batches(checkpoint))
    return QueryPositions(batch, watermark, tuple(sources), uncommitted)


def _position(number: int, offset: str, checkpoint: CheckpointStorage) -> SourcePosition:
    """Return the position of one source, with the options for its kind of source."""
    if offset == "-":
        advice = "it was not read yet, so configure it as in the old query"
        return SourcePosition(number, offset, {}, None, advice)
    if not offset:
        raise ValueError(f"source {number} has no offset")
    fields = _fields(offset) if offset.startswith("{") else {}
    if set(fields) == {"logOffset"}:
        files = _files(checkpoint, number, exact_int(fields["logOffset"], int))
        advice = f"{len(files)} files were read: use sources[{number}].unread(stream)"
        return SourcePosition(number, offset, {}, files, advice)
    options, advice = _delta(fields) if "reservoirVersion" in fields else _kafka(offset, fields)
    return SourcePosition(number, offset, options, None, advice)


def _kafka(offset: str, fields: dict[str, Any]) -> tuple[dict[str, str], str]:
    """Return the option of Kafka: its offsets map each topic to the next offset per partition."""
    if not fields or not all(isinstance(each, dict) for each in fields.values()):
        return {}, f"start at the offset {offset}"
    return {"startingOffsets": offset}, f"Kafka, option startingOffsets = {offset}"


def _delta(fields: dict[str, Any]) -> tuple[dict[str, str], str]:
    """Return the option of Delta, which can only start between two versions of the table.

    Delta's index is negative if all earlier versions were read whole, and none of this version.
    """
    if fields.get("isStartingVersion") or fields.get("index", 0) >= 0:
        return {}, (
            "Delta, within a version, where no query can start. Start the old query again with "
            "trigger(availableNow=True) until it has read the version whole, and then migrate again"
        )
    version = str(fields["reservoirVersion"])
    return {"startingVersion": version}, f"Delta, option startingVersion = {version}"


def _files(checkpoint: CheckpointStorage, number: int, last: int) -> tuple[str, ...]:
    """Return the URIs of the files in a file source's log up to its entry `last`.

    Every tenth entry is compact: it repeats the earlier ones, which Spark then deletes.

    Raises:
        CorruptSnapshotError: an entry is missing or cannot be read, so that its files would be read
            again.
    """
    found, first, entries = set(), 0, set()
    for path in checkpoint.list(f"sources/{number}"):
        name, compact, _ = path.rpartition("/")[2].partition(".compact")
        if not name.isdigit():
            continue
        entries.add(int(name))
        first = max(first, int(name)) if compact else first
        lines = _lines(checkpoint, path)
        with decoding(_where(checkpoint, path), "it is not a log of files"):
            files = [_fields(line) for line in lines if line]
            found |= {
                exact_text(file["path"], str)
                for file in files
                if exact_int(file["batchId"], int) <= last
            }
    missing = set(range(first, last + 1)) - entries
    if missing:
        where = _where(checkpoint, f"sources/{number}/{min(missing)}")
        raise CorruptSnapshotError(where, "it is missing, so the files that it names are unknown")
    return tuple(sorted(found))


def _lines(checkpoint: CheckpointStorage, path: str) -> list[str]:
    """Return the lines of a log after the version, at least one; raise CorruptSnapshotError."""
    version, *lines = checkpoint.read_all(path).decode("utf-8", "replace").split("\n")
    if version != "v1":
        reason = f"its version is {version[:20]!r}, and Millpond reads v1"
        raise CorruptSnapshotError(_where(checkpoint, path), reason)
    return lines or [""]


def _where(checkpoint: CheckpointStorage, path: str) -> str:
    """Return the place of a log, for errors."""
    return f"{public_uri(checkpoint.uri)}/{path}"


def _fields(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`; raise ValueError if it is not an object."""
    fields = parse_json(text)
    if not isinstance(fields, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004 - about the text
    return fields


def _scheme_and_path(uri: str) -> str:
    """Return a URI in the form of Spark's column ``_metadata.file_path`` after the replacement."""
    return f"file:/{uri[5:].lstrip('/')}" if uri.startswith("file:") else uri
