"""`linnet chat MODEL`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import sys

from linnet.cli import talk
from linnet.errors import Error
from linnet.text.conversation import Conversation
from linnet.text.generation import Finished

HELP = """Talk to a model in the terminal.

Ctrl-C ends an answer. At the prompt, Ctrl-D or Ctrl-C twice leaves; /help lists the commands."""

_COMMANDS = """  /reset        forget the conversation; a system message stays
  /system TEXT  forget the conversation and set a system message
  /exit         leave (also Ctrl-D)
  /help         this list"""


def arguments(parser: argparse.ArgumentParser) -> None:
    talk.add_model_arguments(parser)


def run(args: argparse.Namespace) -> int:
    talk.read_words(args)
    loaded = talk.load_model(args)
    talker = Conversation(
        loaded.model,
        loaded.text,
        loaded.settings,
        loaded.context.length if loaded.context else None,
        loaded.recurrent,
    )
    if args.system is not None:
        talker.messages.append({"role": "system", "content": args.system})
    loaded.text.chat([*talker.messages, {"role": "user", "content": "?"}])  # fails early
    talk.compile_entries(loaded.model, args.quiet)
    if not args.quiet and loaded.context:
        print(f"{loaded.context}. /help lists the commands.", file=sys.stderr)
    return _loop(talker, args.quiet)


def _loop(talker: Conversation, quiet: bool) -> int:
    terminal = sys.stdin.isatty()
    if terminal:
        try:  # line editing and history for input(), where Python has it
            import readline  # noqa: F401
        except ImportError:
            pass
    warned = False
    while True:
        try:
            line = input("> " if terminal else "").strip()
            warned = False
        except EOFError:
            if terminal:
                print()
            return 0
        except KeyboardInterrupt:
            print()
            if warned:
                return 0
            warned = True
            print("Ctrl-C again or Ctrl-D leaves.", file=sys.stderr)
            continue
        if not line:
            continue
        if line.startswith("/"):
            if not _command(talker, line):
                return 0
            continue
        try:
            _answer(talker, line, quiet)
        except Error as e:
            print(f"error: {e}", file=sys.stderr)
            print("/reset forgets the conversation.", file=sys.stderr)
        except KeyboardInterrupt:  # a second Ctrl-C did not wait for the step to end
            print()


def _answer(talker: Conversation, line: str, quiet: bool) -> None:
    with talk.Interrupt().listen() as interrupt:
        for event in talker.ask(line, interrupt):
            if isinstance(event, Finished):
                talk.write("\n")
                if not quiet:
                    print(talk.figures(event), file=sys.stderr)
            else:
                talk.write(event.text)


def _command(talker: Conversation, line: str) -> bool:
    """Whether the conversation goes on."""
    name, _, rest = line.partition(" ")
    if name in ("/exit", "/quit"):
        return False
    if name == "/reset":
        talker.reset()
    elif name == "/system":
        talker.messages = [{"role": "system", "content": rest.strip()}] if rest.strip() else []
    else:
        if name != "/help":
            print(f"unknown command {name}", file=sys.stderr)
        print(_COMMANDS, file=sys.stderr)
    return True
