"""The command `linnet`: find the command, import its module alone, run it.

A command is a module of this package with `HELP`, `arguments(parser)` and `run(args)`.
Exit status: 0 fine, 1 the input has errors, 2 the command line is wrong. Errors go to
standard error, results to standard output.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from linnet import __version__
from linnet.errors import CheckError, Error, how_to_install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# In the order of `linnet --help`; one line each, so that help imports nothing.
COMMANDS: dict[str, str] = {
    "check": "check files, packages and card folders",
    "lint": "what is correct and could be better: slow definitions, needless words, names",
    "fmt": "write files in the language's one style",
    "explain": "what a code of a finding means, with the way out",
    "init": "a new package that checks and runs",
    "inspect": "a model's parameters, syntax, IR, diagram, generated code and kernels",
    "memory": "what a model holds in memory at sizes of your choice",
    "quantize": "a checkpoint in 4 or 8 bits, as a folder that loads as it lies",
    "bench": "a model's speed and memory, beside the machine's limits and other engines",
    "generate": "continue a text, or answer it with --chat",
    "chat": "talk to a model in the terminal",
    "serve": "OpenAI's API for a model, and a chat page",
    "list": "the models of the zoo, or of another registry",
    "show": "one model: its card, entries, sizes and files",
    "pull": "fetch a model's weights and tokenizer",
    "parity": "where our values and transformers' first part",
    "nest": "the zoo: its pages and checks",
}

# Packages that a command may find missing, with the extra that installs each.
EXTRAS = {
    "torch": "torch",
    "numpy": "torch",
    "tokenizers": "text",
    "jinja2": "text",
    "gguf": "gguf",
    "transformers": "parity",
    "huggingface_hub": "hub",
    "markdown_it": "pages",
    "starlette": "serve",
    "uvicorn": "serve",
    "prometheus_client": "serve",
}

USAGE = "usage: linnet COMMAND [ARGUMENT …]   (`linnet COMMAND --help` tells more)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, without the program's name; the exit status."""
    from linnet.cli.terminal import UsageError, abandon_output, prepare_streams

    prepare_streams()
    try:
        status = _main(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except UsageError as error:
        return _fail(str(error), status=2)
    except CheckError as error:
        return _fail_check(error)
    except Error as error:
        return _fail(str(error))
    except BrokenPipeError:
        abandon_output()
        return 141  # what a shell reports for SIGPIPE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130  # what a shell reports for SIGINT
    except Exception as error:
        import os

        if os.environ.get("LINNET_TRACEBACK"):
            raise
        if isinstance(error, ModuleNotFoundError):
            package = (error.name or "").partition(".")[0]
            if package in EXTRAS:
                extra = EXTRAS[package]
                return _fail(f"this needs the package {package}: {how_to_install(extra)}")
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        return _fail(
            f"internal error: {what}\n"
            "This is a fault of linnet itself; LINNET_TRACEBACK=1 shows where it happened."
        )


def _main(argv: list[str]) -> int:
    if not argv:
        print(help_text(), file=sys.stderr)
        return 2
    name, *rest = argv
    if name in ("--version", "-V", "version"):
        print(f"linnet {__version__}")
        return 0
    if name in ("--help", "-h", "help"):
        if rest and rest[0] in COMMANDS:
            return run_command(rest[0], ["--help"])
        print(help_text())
        return 0
    if name not in COMMANDS:
        return _unknown(name)
    return run_command(name, rest)


def run_command(name: str, rest: list[str]) -> int:
    """Find a command's module and run it."""
    from importlib import import_module

    command = import_module(f"linnet.cli.{name}")
    if table := getattr(command, "SUBCOMMANDS", None):
        return run_subcommand(name, command.HELP, table, rest)
    return run_module(command, name, rest)


def run_subcommand(name: str, help: str, table: dict[str, str], rest: list[str]) -> int:
    """`linnet NAME SUBCOMMAND …`: the subcommand is the module `NAME_SUBCOMMAND`."""
    from importlib import import_module

    if rest and rest[0] in table:
        command = import_module(f"linnet.cli.{name}_{rest[0]}")
        return run_module(command, f"{name} {rest[0]}", rest[1:])
    width = max(map(len, table))
    lines = "\n".join(f"  {sub:<{width}}  {summary}" for sub, summary in table.items())
    shown = with_example(name, help)
    usage = f"usage: linnet {name} SUBCOMMAND [ARGUMENT …]\n\n{shown}\n\nsubcommands:\n{lines}"
    if rest and rest[0] in ("--help", "-h", "help"):
        print(usage)
        return 0
    if rest:
        return _fail(
            f"unknown subcommand `{name} {rest[0]}`; expected one of {', '.join(table)}", status=2
        )
    print(usage, file=sys.stderr)
    return 2


def run_module(command: Any, name: str, rest: list[str]) -> int:
    """Parse the arguments of a command's module and run it."""
    import argparse

    from linnet.cli.parser import Parser
    from linnet.cli.terminal import help_width

    columns = help_width()  # argparse would ask `shutil`, which is slow to import
    parser = Parser(
        prog=f"linnet {name}",
        description=with_example(name, command.HELP),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=columns),
        allow_abbrev=False,
    )
    command.arguments(parser)
    try:
        args = parser.read(rest)
    except SystemExit as stop:  # argparse has printed its help
        return stop.code if isinstance(stop.code, int) else 2
    status = command.run(args)
    return status if isinstance(status, int) else 0


def with_example(name: str, help: str) -> str:
    """A command's help, with an example from the table where it has none."""
    if "\n  linnet " in help:
        return help
    from linnet.cli.examples import EXAMPLES

    return f"{help}\n\n{EXAMPLES[name]}" if name in EXAMPLES else help


def help_text() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        f"linnet {__version__}: neural networks as checked text",
        "",
        USAGE,
        "",
        "commands:",
        *(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()),
        "",
        "  --version  the version",
    ]
    return "\n".join(lines)


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    kind = "option" if name.startswith("-") else "command"
    message = f"unknown {kind} `{name}`"
    near = get_close_matches(name, COMMANDS, n=2, cutoff=0.5)
    if near:
        message += f"; did you mean {' or '.join(f'`{one}`' for one in near)}?"
    elif any(mark in name for mark in "/.\\"):
        message += f"; to check a file or folder: `linnet check {name}`"
    print(f"error: {message}\n{USAGE}", file=sys.stderr)
    return 2


def _fail_check(error: CheckError) -> int:
    """Print every finding of a program that a command needed and that does not check."""
    from linnet.cli.terminal import use_color, width
    from linnet.diagnostics.text import render_all

    errors = [one for one in error.diagnostics if one.severity == "error"]
    color, columns = use_color(sys.stderr), width(sys.stderr)
    print(render_all(errors, color=color, width=columns), end="", file=sys.stderr)
    count = len(errors)
    return _fail(
        f"{count} error{'' if count == 1 else 's'} in the program" if count else str(error)
    )


def _fail(message: str, status: int = 1) -> int:
    from linnet.cli.terminal import use_color

    head = "\x1b[1;31merror\x1b[0m" if use_color(sys.stderr) else "error"
    try:
        print(f"{head}: {message}", file=sys.stderr)
    except OSError:  # nobody reads standard error
        pass
    return status


if __name__ == "__main__":
    sys.exit(main())
