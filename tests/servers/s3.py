"""S3-compatible servers for tests: a small one of our own, and moto's where it is installed. Both run in a thread."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from drumbeat.core.clock import SystemClock

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
_SIGNATURE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=test/\d{8}/us-east-1/s3/aws4_request, ?"
    r"SignedHeaders=[a-z0-9;-]*\bhost\b[a-z0-9;-]*, ?Signature=[0-9a-f]{64}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running server: its endpoint, and a function that creates a bucket and returns its name."""

    endpoint: str
    new_bucket: Callable[[], str]


@dataclass(slots=True)
class _Stored:
    data: bytes
    modified: datetime = field(default_factory=lambda: SystemClock().now().replace(microsecond=0))

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def own_server() -> Iterator[S3Server]:
    """Run our own server during the block: put, get, delete and list of objects, refused without a signature."""
    buckets: dict[str, dict[str, _Stored]] = {}

    def new_bucket() -> str:
        name = f"bucket-{uuid4().hex}"
        buckets[name] = {}
        return name

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"buckets": buckets}))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="s3", kwargs={"poll_interval": 0.05})
    with patch.dict(os.environ, CREDENTIALS):
        thread.start()
        try:
            yield S3Server(endpoint=f"http://127.0.0.1:{server.server_port}", new_bucket=new_bucket)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """Run moto's server during the block."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with patch.dict(os.environ, CREDENTIALS):
        server.start()
        try:
            host, port = server.get_host_and_port()
            endpoint = f"http://{host}:{port}"

            def new_bucket() -> str:
                name = f"bucket-{uuid4().hex}"
                boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
                return name

            yield S3Server(endpoint=endpoint, new_bucket=new_bucket)
        finally:
            server.stop()


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for objects (``/BUCKET/KEY``) and lists (``/BUCKET?list-type=2``)."""

    buckets: dict[str, dict[str, _Stored]]
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        if (found := self._objects()) is not None:
            objects, key, _, body = found
            objects[key] = _Stored(body)
            self._answer(200, headers={"ETag": objects[key].etag})

    def do_GET(self) -> None:
        if (found := self._objects()) is None:
            return
        objects, key, query, _ = found
        if not key:
            self._answer(200, _listed(objects, query))
        elif key not in objects:
            self._error(404, "NoSuchKey")
        else:
            self._answer_object(objects[key])

    def do_DELETE(self) -> None:
        if (found := self._objects()) is not None:
            objects, key, _, _ = found
            objects.pop(key, None)
            self._answer(204)

    def do_POST(self) -> None:
        """Delete many objects (``/BUCKET?delete``)."""
        if (found := self._objects()) is None:
            return
        objects, _, query, body = found
        if "delete" not in query:
            self._error(501, "NotImplemented")
            return
        keys = [each.text or "" for each in ElementTree.fromstring(body).iter() if each.tag.rpartition("}")[2] == "Key"]
        for key in keys:
            objects.pop(key, None)
        gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

    def _objects(self) -> tuple[dict[str, _Stored], str, dict[str, list[str]], bytes] | None:
        """Return the objects of the bucket, the key, the query and the body; None if the request was refused."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        checksum = self.headers.get("x-amz-content-sha256", "")
        is_whole = checksum in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest())
        if _SIGNATURE.fullmatch(self.headers.get("Authorization", "")) is None or not is_whole:
            self._error(403, "SignatureDoesNotMatch")
        elif bucket not in self.buckets:
            self._error(404, "NoSuchBucket")
        else:
            return self.buckets[bucket], key, parse_qs(parts.query, keep_blank_values=True), body
        return None

    def _answer_object(self, stored: _Stored) -> None:
        headers = {"ETag": stored.etag, "Last-Modified": format_datetime(stored.modified, usegmt=True)}
        if (wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) is None:
            self._answer(200, stored.data, headers)
            return
        first, last = int(wanted[1]), int(wanted[2] or len(stored.data) - 1)
        part = stored.data[first : last + 1]
        headers["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(stored.data)}"
        self._answer(206, part, headers)

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *message: object) -> None:
        """Log nothing."""


def _listed(objects: dict[str, _Stored], query: dict[str, list[str]]) -> bytes:
    prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
    found = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>{stored.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
        f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.data)}</Size></Contents>"
        for key, stored in sorted(objects.items())
        if key.startswith(prefix) and key > after
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()
