"""The page at `/`: three files of our own, nothing from elsewhere."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


# A leaf on a stem: browsers ask for an icon whether the page names one or not.
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><path fill="#2f7d4f" '
    'd="M5 27C4 12 12 5 27 5c0 15-7 22-19 20l6-9-9 11z"/></svg>'
)


async def icon(request: Request) -> Response:
    return Response(ICON, headers={**_HEADERS, "content-type": "image/svg+xml"})


async def serve(request: Request) -> Response:
    name, kind = FILES[request.url.path]
    return Response(_read(name), headers={**_HEADERS, "content-type": kind})


@lru_cache
def _read(name: str) -> bytes:
    return (files("linnet.serve") / "page" / name).read_bytes()
