"""A small server for the site's files: from memory, so that no request reaches the disk."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from linnet.nest.pages.html import POLICY, page

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PICTURE = "default-src 'none'; style-src 'unsafe-inline'"


def server(files: Mapping[str, str], host: str, port: int) -> ThreadingHTTPServer:
    """A server bound to the address, not yet running."""
    import gzip

    packed = {path: gzip.compress(content.encode(), 6) for path, content in files.items()}
    missing = page("Not found", "<h1>There is no such page</h1>", up="/").encode()

    class Handler(BaseHTTPRequestHandler):
        server_version = "linnet"
        sys_version = ""

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path).lstrip("/")
            if path == "" or path.endswith("/"):
                path += "index.html"
            elif path not in files and f"{path}/index.html" in files:
                self.send_response(HTTPStatus.MOVED_PERMANENTLY)
                self.send_header("Location", f"/{path}/")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if path not in files:
                self.answer(HTTPStatus.NOT_FOUND, "html", missing, False)
            elif "gzip" in self.headers.get("Accept-Encoding", ""):
                self.answer(HTTPStatus.OK, path.rpartition(".")[2], packed[path], True)
            else:
                self.answer(HTTPStatus.OK, path.rpartition(".")[2], files[path].encode(), False)

        do_HEAD = do_GET

        def answer(self, status: HTTPStatus, kind: str, body: bytes, zipped: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{_TYPES.get(kind, 'text/plain')}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            # A picture opened by itself brings its own rules, and nothing else.
            policy = PICTURE if kind == "svg" else f"{POLICY}; frame-ancestors 'none'"
            self.send_header("Content-Security-Policy", policy)
            if zipped:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass  # one line a request helps nobody here

    return ThreadingHTTPServer((host, port), Handler)
