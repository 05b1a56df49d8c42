"""A hub on this machine that speaks as much of Hugging Face's protocol as fetching takes, and
breaks connections off where it is told to."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class Hub:
    """`folders` maps `owner/name` to the files of its one commit. `cut` maps a file's name to how
    many more answers about it end after `after` bytes; `token` is what private repositories ask."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}
        self.private: set[str] = set()
        self.token = "hf_secret"
        self.cut: dict[str, int] = {}
        self.after = 1000
        self.main: dict[str, str] = {}  # repo → the commit that `main` is, where it has moved on
        self.log: list[tuple[str, str, str | None]] = []  # method, path, range
        self.sent = 0  # bytes of files
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def commit(self, repo: str) -> str:
        """What `main` is."""
        return self.main.get(repo) or self.first(repo)

    def first(self, repo: str) -> str:
        return hashlib.sha1(repo.encode()).hexdigest()

    def resolve(self, repo: str, revision: str) -> str | None:
        if revision == "main":
            return self.commit(repo)
        return revision if revision in (self.commit(repo), self.first(repo)) else None

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.log.append((self.command, path, self.headers.get("Range")))
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            self.about(match[1], match[2] or "main")
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.file(match[1], match[2], match[3], body)
        else:
            self.fail(404, None)

    def refused(self, repo: str, revision: str) -> bool:
        if repo not in self.hub.folders:
            self.fail(401, "RepoNotFound")
        elif repo in self.hub.private and self.headers.get("Authorization") != (
            f"Bearer {self.hub.token}"
        ):
            self.fail(403, "GatedRepo")
        elif self.hub.resolve(repo, revision) is None:
            self.fail(404, "RevisionNotFound")
        else:
            return False
        return True

    def about(self, repo: str, revision: str) -> None:
        if self.refused(repo, revision):
            return
        siblings = []
        for path in sorted(self.hub.folders[repo].rglob("*")):
            if not path.is_file():
                continue
            data = path.read_bytes()
            entry: dict[str, Any] = {
                "rfilename": path.relative_to(self.hub.folders[repo]).as_posix(),
                "size": len(data),
                "blobId": hashlib.sha1(data).hexdigest(),
            }
            if path.suffix == ".safetensors":
                digest = hashlib.sha256(data).hexdigest()
                entry["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        document = {
            "id": repo, "modelId": repo, "sha": self.hub.resolve(repo, revision), "private": False,
            "tags": [], "downloads": 0, "likes": 0, "siblings": siblings,
        }  # fmt: skip
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def file(self, repo: str, revision: str, name: str, body: bool) -> None:
        if self.refused(repo, revision):
            return
        path = self.hub.folders[repo] / name
        if not path.is_file():
            self.fail(404, "EntryNotFound")
            return
        data = path.read_bytes()
        first, last = 0, len(data) - 1
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            first = int(wanted[1])
            last = min(last, int(wanted[2])) if wanted[2] else last
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        else:
            self.send_response(200)
        part = data[first : last + 1]
        self.send_header("X-Repo-Commit", str(self.hub.resolve(repo, revision)))
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if not body:
            return
        if self.hub.cut.get(name, 0) > 0 and len(part) > self.hub.after:
            self.hub.cut[name] -= 1
            self.wfile.write(part[: self.hub.after])
            self.hub.sent += self.hub.after
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(part)
        self.hub.sent += len(part)

    def fail(self, status: int, code: str | None) -> None:
        self.send_response(status)
        if code is not None:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()
