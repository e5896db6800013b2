"""Each block for Spark works, or is refused with the shown message."""

from types import SimpleNamespace

import pytest

from tests import postgres_server, s3_server
from tests.documentation import pages


@pytest.fixture
def bucket():
    """An S3 server that checks credentials, with a bucket."""
    with s3_server.s3_server() as started:
        started.make_bucket("bucket")
        with s3_server.checked(started) as strict:
            yield SimpleNamespace(
                endpoint=f"http://{strict.address}",
                access_key=strict.access_key,
                secret_key=strict.secret_key,
            )


@pytest.fixture
def database():
    """The connection string of a PostgreSQL server."""
    with postgres_server.postgres_server() as address:
        yield address


SERVERS = {"S3": "bucket", "DATABASE": "database"}
PAGES = [
    "how-to/back-up.md",
    "how-to/upgrade.md",
    "how-to/exactly-once-sink.md",
    "how-to/recover.md",
    "start.md",
    "tutorial/rescale.md",
    "reference/spark.md",
    "reference/functions.md",
    "explanation/delivery.md",
    "how-to/coming-from-spark.md",
    "how-to/dead-letters.md",
    "how-to/joins.md",
    "how-to/patterns.md",
    "how-to/chain-operators.md",
    "how-to/async-calls.md",
    "how-to/metrics.md",
]


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_blocks_for_spark(spark, job_conf, tmp_path, monkeypatch, request, page):
    """The blocks of a page run in order, in one session."""
    monkeypatch.chdir(tmp_path)
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    space = {"__name__": "__main__", "spark": spark, "FOLDER": str(tmp_path)}
    for word, fixture in SERVERS.items():
        if word in pages.text(page):
            space[word] = request.getfixturevalue(fixture)
    try:
        pages.run(page, "spark", space)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)


def test_every_line_is_executed():
    """Each row of the table of uses links to a section with a tested block, or to another page."""
    text = pages.text("reference/spark.md")
    sections = dict(pages.sections(text))
    links = pages.links(text.partition("\n## ")[0])
    assert links
    for link in links:
        if link.startswith("#"):
            assert "```python" in sections[link[1:]], link
