"""`linnet nest`: what keeps a registry of models. Each subcommand is a module `nest_<name>`."""

from __future__ import annotations

HELP = "Keep a registry of models: check its packages, index them, show them as pages."

# In the order of `linnet nest --help`; one line each, so that help imports nothing.
SUBCOMMANDS: dict[str, str] = {
    "check": "check packages as a registry does",
    "new": "a package for a checkpoint of a family that is known",
    "index": "write one JSON of all cards",
    "site": "write the zoo's pages into a folder",
    "serve": "show the zoo's pages on this machine",
}
