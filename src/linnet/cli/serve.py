"""`linnet serve MODEL`: OpenAI's API for a model, and a page to try it."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.cli.model import add_arguments, parse_bindings
from linnet.cli.terminal import UsageError
from linnet.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from linnet.serve.embedder import Embedder
    from linnet.serve.engine import Engine

HELP = """Serve a model through OpenAI's API, to many clients at once, with a chat page at /.

Clients use http://HOST:PORT/v1. The server listens at once and answers 503 while the model loads.
SIGTERM and Ctrl-C finish the requests there are; a second one ends at once. The log goes to
standard error, one line an event, without prompts or answers."""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    net = parser.add_argument_group("network")
    net.add_argument("--host", default="127.0.0.1", help="address to listen at (127.0.0.1)")
    net.add_argument("--port", type=int, default=8000, help="port to listen at (8000); 0: any")
    net.add_argument(
        "--api-key", metavar="KEY", action="append", default=[],
        help="a key that clients must send; may repeat (others can read it in the process list)",
    )  # fmt: skip
    net.add_argument(
        "--api-key-file", metavar="FILE", action="append", default=[],
        help="keys, one a line; empty lines and lines that begin with # do not count",
    )  # fmt: skip
    net.add_argument(
        "--cors-origin", metavar="ORIGIN", action="append", default=[],
        help="let web pages of this origin ask, such as https://example.org; * for all",
    )  # fmt: skip
    net.add_argument("--no-page", action="store_true", help="no chat page at /")
    net.add_argument(
        "--served-model-name", metavar="NAME", action="append",
        help="what MODEL is called in the API; may repeat",
    )  # fmt: skip
    load = parser.add_argument_group("loading")
    load.add_argument(
        "--weights", metavar="PATH", action="append",
        help="a folder or file of weights, or `random` (default: the card's)",
    )  # fmt: skip
    load.add_argument("--tokenizer", metavar="DIR", help="where the tokenizer is, if elsewhere")
    load.add_argument(
        "--max-seq", type=int, metavar="N", help="context in tokens (default: what fits)"
    )
    load.add_argument("--batch", type=int, metavar="N", help="answers computed at once (8)")
    load.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1 …")
    load.add_argument(
        "--numerics", choices=("exact", "equivalent", "fast"), default="fast",
        help="exact: as written, slow; equivalent: up to reassociation; fast (default)",
    )  # fmt: skip
    load.add_argument(
        "--quantize", metavar="FORMAT",
        help="int8 or int4: pack the weights on load; stored: run a GGUF's own formats",
    )  # fmt: skip
    load.add_argument(
        "--embedding", type=int, choices=(4, 8), default=8,
        help="bits of embeddings and of heads of their shape under int4 (default: 8)",
    )  # fmt: skip
    load.add_argument("--cache", metavar="FORMAT", help="int8: keep keys and values in 8 bits")
    load.add_argument(
        "--cache-size", metavar="MB", type=float, help="memory for prompts kept (256)"
    )
    load.add_argument(
        "--cache-folder", metavar="DIR", help="keep what is known of prompts across restarts"
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds a request may take (600)"
    )
    limits.add_argument(
        "--max-waiting", type=int, default=128, metavar="N", help="requests that may wait (128)"
    )
    limits.add_argument(
        "--max-prompt", type=int, metavar="N", help="tokens of a prompt (default: the context)"
    )
    limits.add_argument(
        "--max-body", type=float, default=8.0, metavar="MB", help="size of a request (8)"
    )
    limits.add_argument(
        "--drain", type=float, default=30.0, metavar="S", help="seconds to finish requests in (30)"
    )
    parser.add_argument(
        "--log", choices=("text", "json", "none"),
        help="how the log is written (default: text on a terminal, else json)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    _check(args)
    keys = read_keys(args.api_key, args.api_key_file)
    generics = parse_bindings(_model(args))
    from linnet.serve.http.app import application
    from linnet.serve.http.logs import Log
    from linnet.serve.http.server import Server
    from linnet.serve.http.service import Limits, Service

    kind = args.log or ("text" if sys.stderr.isatty() else "json")
    log = Log(None if kind == "none" else sys.stderr, plain=kind == "text")
    names = args.served_model_name or [Path(args.model).name]
    limits = Limits(int(args.max_body * (1 << 20)), args.timeout, waiting=args.max_waiting)
    service = Service(names, limits)
    app = application(
        service, keys=keys, origins=args.cors_origin, log=log, with_page=not args.no_page
    )
    load = _loader(args, generics, names[0], service.metrics)
    server = Server(
        service, app, load, host=args.host, port=args.port, drain=args.drain, log=log
    )  # fmt: skip
    if not keys and args.host not in ("127.0.0.1", "::1", "localhost"):
        log.event("warning", text=f"anybody who reaches {args.host} may ask: there is no API key")
    print(server.url, flush=True)
    server.run()
    if server.loading:
        # Native code runs in that thread: the interpreter must not be taken down around it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _loader(
    args: argparse.Namespace, generics: dict[str, Any], name: str, observer: Any
) -> Callable[[Callable[[str], None]], Engine | Embedder]:
    weights = args.weights
    common: dict[str, Any] = {
        "weights": weights[0] if weights and len(weights) == 1 else weights,
        "tokenizer": args.tokenizer,
        "root": args.root,
        "generics": generics,
        "device": args.device,
        "numerics": args.numerics,
        "quantize": args.quantize,
        "embedding": args.embedding,
    }

    def load(progress: Callable[[str], None]) -> Engine | Embedder:
        from linnet.serve.constraint import library
        from linnet.serve.embedder import kind_of, open_embedder
        from linnet.serve.errors import ConstraintsUnavailable
        from linnet.serve.open import open_engine

        progress(f"checking {args.model}")
        if kind_of(args.model, args.root) == "encoder":
            if args.cache is not None:
                raise InputError("--cache: an encoder has no caches of keys and values")
            return open_embedder(args.model, progress=progress, **common)
        engine = open_engine(
            args.model,
            rows=args.batch,
            max_seq=args.max_seq,
            snapshot_bytes=None if args.cache_size is None else int(args.cache_size * (1 << 20)),
            snapshot_folder=args.cache_folder,
            max_waiting=args.max_waiting,
            prompt_limit=args.max_prompt,
            name=name,
            observer=observer,
            progress=progress,
            cache=args.cache,
            **common,
        )
        try:
            library()
        except ConstraintsUnavailable as error:
            progress(str(error))
        engine.start()
        return engine

    return load


def _model(args: argparse.Namespace) -> list[str]:
    """The bindings; `--bind A=1 MODEL` took the model too."""
    bind = list(args.bind)
    if args.model is None and bind and "=" not in bind[-1]:
        args.model = bind.pop()
    if args.model is None:
        raise UsageError("no MODEL given: a name of the zoo, a folder or a .linnet file")
    return bind


def _check(args: argparse.Namespace) -> None:
    """Numbers that make no sense are said before anything is loaded."""
    for name in ("batch", "max_seq", "max_waiting", "max_prompt"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} is {value}; expected an integer above 0")
    for name in ("timeout", "max_body"):
        value = getattr(args, name)
        if not 0 < value < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} is {value}; expected a number above 0")
    for name in ("drain", "cache_size"):
        value = getattr(args, name)
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} is {value}; expected 0 or more")
    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port is {args.port}; expected 0 to 65535")


def read_keys(given: list[str], paths: list[str]) -> list[str]:
    """API keys from the command line, from files and from LINNET_API_KEY."""
    keys = list(given)
    if os.environ.get("LINNET_API_KEY"):
        keys.append(os.environ["LINNET_API_KEY"])
    for path in paths:
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as e:
            reason = e.strerror or e if isinstance(e, OSError) else "not UTF-8"
            raise InputError(f"--api-key-file {path}: cannot be read: {reason}") from None
        found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not found:
            raise InputError(f"--api-key-file {path}: holds no key; expected one a line")
        keys += found
    for key in keys:
        if not key.strip() or not key.isascii():
            raise InputError("an API key is empty or not ASCII; expected printable characters")
    return keys
