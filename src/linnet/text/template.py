"""Chat templates: a list of messages to the text a model expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.errors import InputError
from linnet.text.errors import TextError, require
from linnet.text.tokenizer import read_object

Message = Mapping[str, Any]

_LARGEST = 1_000_000
# Names under which a message carries the model's thoughts. Templates read the first; gpt-oss's
# reads the second.
_REASONING = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """A jinja2 chat template, as Hugging Face models carry it.

    `names` are the special tokens it may print (`bos_token`, `eos_token` …); `where` names its
    origin in errors. Compiles in a sandbox: see `linnet.text.sandbox`. Raises `TextError` for a
    template that is not valid.
    """

    def __init__(self, source: str, names: Mapping[str, str] | None = None, where: str = ""):
        require("jinja2")
        from linnet.text.sandbox import BoundedEnvironment

        self.source = source
        self.names = dict(names or {})
        self.where = where or "the chat template"
        if len(source) > _LARGEST:
            raise TextError(f"{self.where}: has {len(source)} characters; at most {_LARGEST}")
        try:
            self._template = BoundedEnvironment().from_string(source)
        except Exception as e:  # whatever a hostile template makes the compiler raise
            raise TextError(f"{self.where}: is not a valid chat template: {_reason(e)}") from None

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The text for these messages, with the start of the answer to come.

        A message has a `role` and usually `content`. `variables` are handed to the template, such
        as `enable_thinking`. Raises `InputError` for a message of another form, `TextError` where
        the template refuses the messages, fails, or asks for more than its budget
        (`linnet.text.budget`).
        """
        from linnet.text.budget import Budget, current

        values = {
            **self.names,
            "documents": None,
            **{k: _plain(v) for k, v in variables.items()},
            "messages": [_message(m, i) for i, m in enumerate(messages)],
            "tools": _plain(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        budget = Budget()
        token = current.set(budget)
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(values):
                size += len(part)
                budget.charge(1)
                if size > budget.characters:
                    budget.length(size)
                parts.append(part)
        except Exception as e:
            raise TextError(f"{self.where}: {_reason(e)}") from None
        finally:
            current.reset(token)
        return "".join(parts)


def read_variables(source: str) -> frozenset[str]:
    """The names that a template reads and does not set, such as `messages`, `enable_thinking`."""
    from jinja2 import meta

    from linnet.text.sandbox import BoundedEnvironment

    environment = BoundedEnvironment()
    found = meta.find_undeclared_variables(environment.parse(source))
    return frozenset(found) - frozenset(environment.globals)


def read_template(
    folder: str | Path, names: Mapping[str, str], tools: bool = False
) -> ChatTemplate | None:
    """The template of a model's folder, or None.

    From `chat_template.jinja`, else `chat_template` in `chat_template.json` or
    `tokenizer_config.json`. Of several named ones: `tool_use` with `tools`, else `default`.
    """
    folder = Path(folder)
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return ChatTemplate(path.read_text("utf-8"), names, str(path))
        except (OSError, UnicodeDecodeError) as e:
            raise TextError(f"{path}: cannot be read: {e}") from None
    for name in ("chat_template.json", "tokenizer_config.json"):
        path = folder / name
        found = read_object(path).get("chat_template")
        if found is None:
            continue
        if isinstance(found, list):
            named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
            found = (named.get("tool_use") if tools else None) or named.get("default")
        if not isinstance(found, str):
            raise TextError(
                f"{path}: chat_template is {type(found).__name__}; expected a string, or a list "
                "of objects with name and template, one named default"
            )
        return ChatTemplate(found, names, str(path))
    return None


def _message(message: object, index: int) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InputError(f"messages[{index}] is {type(message).__name__}; expected an object")
    if not isinstance(message.get("role"), str):
        raise InputError(f"messages[{index}].role is {message.get('role')!r}; expected a string")
    # Clients send `"content": null` beside tool calls; templates expect such keys to be absent.
    plain: dict[str, Any] = {
        k: _plain(v) for k, v in message.items() if v is not None or k == "content"
    }
    if plain.get("content", "") is None:
        plain["content"] = ""
    thoughts = next((plain[k] for k in _REASONING if plain.get(k) is not None), None)
    if thoughts is not None:
        plain = {"thinking": thoughts, **plain, "reasoning_content": thoughts}
    return plain


def _plain(value: Any) -> Any:
    """A copy in JSON's own types, so that a template meets no object with methods of its own."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise InputError(f"a message holds a {type(value).__name__}; expected JSON values")


def _reason(e: Exception) -> str:
    import jinja2

    from linnet.text.budget import OverBudget

    if isinstance(e, OverBudget):
        return f"the template was stopped: {e}"
    if isinstance(e, RecursionError):
        return "the template was stopped: it calls itself too deeply"
    if isinstance(e, jinja2.TemplateSyntaxError):
        return f"line {e.lineno}: {e.message}"
    if isinstance(e, jinja2.exceptions.SecurityError):
        return f"the template does what is not allowed: {e}"
    if type(e) is jinja2.TemplateError:  # what raise_exception raises
        return f"the template refuses the messages: {e}"
    text = str(e) or type(e).__name__
    return f"the template failed: {text[:500]}"
