"""`linnet generate MODEL [PROMPT]`: a text continued, or with `--chat` a question answered."""

from __future__ import annotations

import argparse
import sys

from linnet.cli import talk
from linnet.cli.terminal import UsageError

HELP = """Continue a text with a model, or answer it through the model's chat template.

The prompt is the argument, or standard input where there is none (or it is `-`). The answer
streams to standard output; tokens per second and the context go to standard error. Ctrl-C ends
the answer, with exit status 130."""

# A plain text has no natural end, so without --max-new it is continued this far.
_PLAIN_LENGTH = 256


def arguments(parser: argparse.ArgumentParser) -> None:
    talk.add_model_arguments(parser)
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="the text (default: stdin)")
    parser.add_argument("--chat", action="store_true", help="use the model's chat template")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="add nothing to the prompt, and write special tokens out in the answer",
    )


def run(args: argparse.Namespace) -> int:
    talk.read_words(args)
    if args.system is not None and not args.chat:
        raise UsageError("--system needs --chat")
    if args.chat and args.raw:
        raise UsageError("--chat and --raw exclude each other")
    if args.max_new is None and not args.chat:
        args.max_new = _PLAIN_LENGTH
    prompt = _prompt(args)
    from linnet.text.generation import Finished, generate

    loaded = talk.load_model(args)
    tokenizer = loaded.text.tokenizer
    if args.chat:
        messages = [{"role": "user", "content": prompt}]
        if args.system is not None:
            messages.insert(0, {"role": "system", "content": args.system})
        ids = tokenizer.encode(loaded.text.chat(messages))
    else:
        ids = tokenizer.encode(prompt, begin=not args.raw)
    settings = loaded.settings.change(special=args.raw)
    limit = loaded.context.length if loaded.context else None
    done: Finished | None = None
    with talk.Interrupt().listen() as interrupt:
        events = generate(
            loaded.model, tokenizer, ids, settings, context=limit, interrupted=interrupt
        )
        compiling = talk.compile_entries(loaded.model, args.quiet)
        for event in events:
            if isinstance(event, Finished):
                done = event
            else:
                talk.write(event.text)
    talk.write("\n")
    if done is None:
        return 1
    if not args.quiet:
        print(talk.figures(done), file=sys.stderr)
        if compiling >= 2:
            print(
                f"compiling took {compiling:.0f} s; the code is kept for the next time",
                file=sys.stderr,
            )
        if loaded.context:
            print(loaded.context, file=sys.stderr)
    return 130 if done.reason == "interrupted" else 0


def _prompt(args: argparse.Namespace) -> str:
    if args.prompt not in (None, "-"):
        return str(args.prompt)
    if sys.stdin.isatty() and args.prompt is None:
        raise UsageError("no PROMPT given, and standard input is a terminal")
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    # `echo question |` ends with a line break that is no part of the question.
    return text.removesuffix("\n")
