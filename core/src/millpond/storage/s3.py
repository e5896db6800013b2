"""Amazon S3 and stores that speak its protocol: where they are, and with what credentials.

``s3a://`` is what Spark calls the same: it goes by Hadoop's settings where Spark has them.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs
import pyarrow as pa
from pyarrow import fs

from millpond.config import Config, S3Config
from millpond.config.structuring import Secret
from millpond.errors import ConfigError

S3_SCHEMES = ("s3", "s3a")
_CREDENTIALS = ("access_key", "secret_key", "session_token")
_HADOOP_NAMES = {
    "endpoint": "endpoint",
    "region": "endpoint.region",
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "ssl": "connection.ssl.enabled",
}
_DELAYED_OPEN = "allow_delayed_open"
_IN_ONE_REQUEST = int(pa.__version__.partition(".")[0]) >= 21  # noqa: PLR2004 - which has the option
"""Whether a file of less than 10 MB can be one request, not three: begin, a part, complete."""

_AMAZON = ("", "s3.amazonaws.com")
"""What Hadoop calls no endpoint at all."""


def s3_settings(uri: str, config: Config) -> S3Config:
    """How the store of a URI is reached: Millpond's settings, then for ``s3a://`` Hadoop's."""
    parts = urlsplit(uri)
    if parts.scheme != "s3a":
        return config.checkpoint.s3 if parts.scheme in S3_SCHEMES else S3Config()
    bucket = parts.netloc.rpartition("@")[2]
    return _over(config.checkpoint.s3, _hadoops(config, bucket))


def s3_filesystem(uri: str, settings: S3Config) -> tuple[Any, str]:
    """The file system of a URI, whose own user and options come first; and the path in it."""
    uri = "s3:" + uri.partition(":")[2]
    if settings == S3Config():
        if _IN_ONE_REQUEST and _DELAYED_OPEN not in uri:
            uri += f"{'&' if '?' in uri else '?'}{_DELAYED_OPEN}=true"
        filesystem, root = fs.FileSystem.from_uri(uri)
        return filesystem, root
    parts = urlsplit(uri)
    bucket = parts.netloc.rpartition("@")[2]
    chosen = _over(_in_uri(uri), settings)
    scheme, _, endpoint = (chosen.endpoint or "").rpartition("://")
    arguments: dict[str, Any] = {name: getattr(chosen, name) for name in _CREDENTIALS}
    if _IN_ONE_REQUEST:
        arguments[_DELAYED_OPEN] = True
    if endpoint:
        arguments["endpoint_override"] = endpoint.rstrip("/")
    return fs.S3FileSystem(
        **arguments,
        scheme=scheme or ("http" if chosen.ssl is False else "https"),
        region=chosen.region or _region(bucket, endpoint),
        force_virtual_addressing=chosen.path_style is False,
    ), (bucket + unquote(parts.path)).rstrip("/")


def _region(bucket: str, endpoint: str) -> str:
    """The bucket's, which Amazon tells; a store elsewhere takes any."""
    if not endpoint:
        return str(fs.resolve_s3_region(bucket))
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _over(first: S3Config, second: S3Config) -> S3Config:
    """What the first says, else what the second says; credentials are taken from one of them."""
    own = any(getattr(first, name) is not None for name in _CREDENTIALS)
    missing = {
        name: value
        for name, value in attrs.asdict(second).items()
        if getattr(first, name) is None and not (own and name in _CREDENTIALS)
    }
    return attrs.evolve(first, **missing)


def _in_uri(uri: str) -> S3Config:
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    scheme = options.pop("scheme", None)
    endpoint, region = options.pop("endpoint_override", None), options.pop("region", None)
    if options:
        reason = f"expected endpoint_override, region or scheme behind ?, got {min(options)!r}"
        raise ConfigError("checkpoint.dir", reason)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    return S3Config(
        endpoint,
        region,
        Secret(unquote(user)) if user else None,
        Secret(unquote(password)) if password else None,
        ssl=None if scheme is None else scheme == "https",
    )


def _hadoops(config: Config, bucket: str) -> S3Config:
    """What Hadoop's settings say of a bucket; those of the bucket itself come first."""
    found = config.hadoop
    values = {
        field: found.get(f"fs.s3a.bucket.{bucket}.{name}") or found.get(f"fs.s3a.{name}")
        for field, name in _HADOOP_NAMES.items()
    }
    if values["endpoint"] in _AMAZON:
        del values["endpoint"]
    given = {field: value for field, value in values.items() if value}
    return Config({f"checkpoint.s3.{field}": value for field, value in given.items()}).checkpoint.s3
