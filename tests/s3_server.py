"""A server that speaks S3's protocol on loopback, and can check credentials."""

import json
import logging
import re
import urllib.request
import uuid
from contextlib import contextmanager

import attrs
import boto3
import pyarrow as pa
from moto.server import ThreadedMotoServer

REGION = "us-east-1"
IN_ONE_REQUEST = int(pa.__version__.partition(".")[0]) >= 21
"""Whether this pyarrow writes a small file with one request."""

_METHOD = re.compile(r'"(?:\x1b\[\d+m)*([A-Z]+) /')
"""The method in a line of the server's log; the server colours unusual answers."""


@attrs.frozen
class S3Server:
    """The running server.

    Attributes:
        address: its host and port.
        access_key, secret_key: credentials of a user with all rights; used once the server checks them.
    """

    address: str
    access_key: str = "key"
    secret_key: str = "secret"

    def make_bucket(self, name):
        made = urllib.request.Request(f"http://{self.address}/{name}", method="PUT")
        urllib.request.urlopen(made).close()

    def client(self, service="s3"):
        """Return a client of Amazon's library."""
        return boto3.client(
            service,
            endpoint_url=f"http://{self.address}",
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )

    def files(self, bucket):
        """Return the names of all objects in a bucket."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]


@contextmanager
def s3_server():
    """Start a server for the duration of a test."""
    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    started.start()
    host, port = started.get_host_and_port()
    try:
        yield S3Server(f"{host}:{port}")
    finally:
        started.stop()


@contextmanager
def heard_requests():
    """Return a list that collects the methods of requests to servers of this process."""
    heard = []
    log = logging.getLogger("werkzeug")
    handler = logging.Handler()
    handler.emit = lambda record: heard.extend(_METHOD.findall(record.getMessage()))
    level, propagates = log.level, log.propagate
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    try:
        yield heard
    finally:
        log.removeHandler(handler)
        log.propagate = propagates
        log.setLevel(level)


@contextmanager
def checked(server):
    """Yield the same server, which accepts only one user meanwhile."""
    iam = server.client("iam")
    user = f"jobs-{uuid.uuid4().hex}"  # the servers of a process share their users
    iam.create_user(UserName=user)
    allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName=user, PolicyName="s3", PolicyDocument=policy)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    _check_after(server, "0")
    try:
        yield attrs.evolve(server, access_key=key["AccessKeyId"], secret_key=key["SecretAccessKey"])
    finally:
        _check_after(server, "inf")


def _check_after(server, requests):
    plain = {"Content-Type": "text/plain"}
    url = f"http://{server.address}/moto-api/reset-auth"
    urllib.request.urlopen(urllib.request.Request(url, requests.encode(), plain)).close()
