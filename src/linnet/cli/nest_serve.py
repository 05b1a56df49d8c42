"""`linnet nest serve`: the zoo's pages from this machine, until interrupted."""

from __future__ import annotations

import argparse

from linnet.cli.nest_site import add_models, folders

HELP = "Show the zoo's pages on this machine. Ctrl-C ends it."


def arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    parser.add_argument("--host", default="127.0.0.1", help="the address (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8765, help="the port (default: 8765)")


def run(args: argparse.Namespace) -> int:
    from linnet.errors import PackageError
    from linnet.nest.pages.serve import server
    from linnet.nest.pages.site import build

    files, refused = build(folders(args.models))
    for name, reason in refused.items():
        print(f"{name} is not shown: {reason}", flush=True)
    try:
        running = server(files, args.host, args.port)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise PackageError(f"{args.host}:{args.port} cannot be served: {why}") from error
    with running:
        print(f"http://{args.host}:{running.server_address[1]}/", flush=True)
        running.serve_forever()
    return 0
