"""The frame of a page, and the few helpers that write HTML. All text is escaped here."""

from __future__ import annotations

from html import escape

# Nothing but the site's own files; scripts only from files, so that none in a text can run.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'"
)

# A small bird, drawn for this site; the icon is the same path.
BIRD_PATH = (
    "M3 14c4 .5 6-1 8-4 1.500-2.300 3.500-4 6-4 1.500 0 2.800.6 3.600 1.600L23 8l-2 1.500"
    "c0 5.500-4 9.500-9.500 9.500C8 19 5 17.200 3 14z"
)
BIRD = (
    '<svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">'
    f'<path d="{BIRD_PATH}" fill="currentColor"/></svg>'
)


# Characters that would show a text in another order than it has, or not at all.
_UNSEEN = dict.fromkeys(
    (*range(9), 11, 12, *range(14, 32), 127, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    "\ufffd",
)


def text(value: object) -> str:
    return escape(str(value).translate(_UNSEEN), quote=True)


def element(tag: str, content: str, **attributes: object) -> str:
    """An element around HTML. `class_` and `for_` lose their underscore, others turn `_` to `-`;
    True is an attribute without a value, None and False are none."""
    parts = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        parts.append(name if value is True else f'{name}="{text(value)}"')
    return f"<{' '.join(parts)}>{content}</{tag}>"


def outside(address: str, label: str) -> str:
    """A link that leaves the site, marked as such; plain text for what is no web address."""
    if not address.startswith(("https://", "http://")):
        return text(label)
    return (
        f'<a class="out" rel="noopener noreferrer nofollow external" href="{text(address)}">'
        f'{text(label)}<span class="arrow" aria-hidden="true">↗</span>'
        '<span class="unseen"> (leaves this site)</span></a>'
    )


def page(title: str, body: str, *, up: str, description: str = "", crumbs: str = "") -> str:
    """A whole page. `up` is the way to the site's root: "", "../"."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{text(POLICY)}">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{text(title)}</title>
<meta name="description" content="{text(description)}">
<link rel="stylesheet" href="{up}_/site.css">
<link rel="icon" href="{up}_/linnet.svg" type="image/svg+xml">
<script src="{up}_/site.js" defer></script>
</head>
<body>
<a class="skip" href="#main">To the content</a>
<header class="top"><a class="home" href="{up}index.html">
{BIRD} Linnet zoo</a>{crumbs}</header>
<main id="main">
{body}
</main>
<footer class="foot">Written by <code>linnet nest site</code>.
Nothing here is loaded from elsewhere.</footer>
</body>
</html>
"""


def human_count(count: float) -> str:
    """`34.7 B`, `135 M`: how many, to three figures."""
    for unit in ("", " K", " M", " B"):
        if count < 1000:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} T"
