"""As much of S3's protocol as listing and reading need, from a dictionary of objects."""

import hashlib
import re
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from serving import running

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        self.server.asked.append((self.command, key, self.headers.get("Authorization", "")))
        if bucket == "private":
            return self.answer(403, error("AccessDenied"))
        if not key:
            return self.answer(200, self.listing(parse_qs(parts.query)))
        data = self.server.objects.get(key)
        if data is None:
            return self.answer(404, error("NoSuchKey"))
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not found:
            return self.answer(200, data, data)
        start, end = int(found[1]), int(found[2] or len(data) - 1)
        span = f"bytes {start}-{min(end, len(data) - 1)}/{len(data)}"
        return self.answer(206, data[start : end + 1], data, {"Content-Range": span})

    def answer(self, status, body, whole=b"", headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(whole).hexdigest()[:32]}"')
        self.send_header("Last-Modified", "Sat, 01 Jan 2022 00:00:00 GMT")
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def listing(self, query):
        prefix = query.get("prefix", [""])[0]
        rows = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>&quot;"
            f"{hashlib.sha256(data).hexdigest()[:32]}&quot;</ETag>"
            "<LastModified>2022-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(self.server.objects.items())
            if key.startswith(prefix)
        ]
        return (
            f'<ListBucketResult xmlns="{NAMESPACE}"><IsTruncated>false</IsTruncated>'
            f"<KeyCount>{len(rows)}</KeyCount>{''.join(rows)}</ListBucketResult>"
        ).encode()


def error(code):
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


def fake_s3(objects):
    """Serve objects (key: bytes) as any bucket but ``private``; yield endpoint and server."""
    return running(Handler, objects=objects, asked=[])
