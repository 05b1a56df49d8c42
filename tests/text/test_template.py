"""Chat templates: equal to transformers where they are well-meant, stopped where they are not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from text_fakes import smollm2_metadata

from linnet.errors import Error, InputError
from linnet.text.errors import TextError
from linnet.text.template import ChatTemplate, read_template

ONE = [{"role": "user", "content": "What is the capital of France?"}]
TURNS = [
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": "  Hi <b>you</b> & \"all\" 'x'  "},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!", "reasoning": "so"},
    {"role": "user", "content": [{"type": "text", "text": "é"}, {"type": "text", "text": "2"}]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": [None, "ü"]}}}]},
    {"role": "tool", "content": "{\"t\": 21.5}"},
]  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"x": [1, 2.5, True]}}}]

# What the templates of current models are made of.
CONSTRUCTS = """
{%- macro text(content) -%}
    {%- if content is string -%}{{- content | trim -}}
    {%- else -%}{%- for c in content -%}{%- if c.type == 'text' -%}{{- c.text -}}{%- endif -%}
    {%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last=-1, calls=0) -%}
{{- bos_token }}
{%- if tools %}
    {{- '<tools>\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}{{ "\\n" if not loop.last }}
    {%- endfor %}
    {{- tools | tojson(indent=2) }}
{%- endif %}
{%- for m in messages[::-1] %}
    {%- set i = (messages|length - 1) - loop.index0 %}
    {%- if m.role == 'user' and ns.last < 0 %}{% set ns.last = i %}{% endif %}
{%- endfor %}
{% for message in messages %}
    {% if message.role not in ['system', 'user', 'assistant', 'tool'] %}
        {{ raise_exception('unknown role ' ~ message.role) }}
    {% endif %}
    {%- if loop.index0 > 100 %}{% break %}{% endif %}
    {%- if message['role'] == 'tool' %}
        {{- '[' + message.content | upper + ']' }}{% continue %}
    {% endif %}
<{{ message.role }} {{ loop.index0 }}/{{ loop.length }}>
    {%- if message.reasoning_content is defined %}({{ message.reasoning_content }}){% endif %}
    {%- set content = text(message.content or '') %}
    {%- if '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {% generation %}{{ content }}{% endgeneration %}
    {%- for call in message.tool_calls or [] %}
        {%- set ns.calls = ns.calls + 1 %}
        {%- set f = call.function if call.function is defined else call %}
        {{- '\\n' ~ f.name ~ '#' ~ ns.calls ~ '#' ~ (f.arguments | tojson) }}
        {%- for k, v in f.arguments | items %}{{ k }}={{ v if v is string else v | tojson }};
        {%- endfor %}
    {%- endfor %}
{% endfor %}
{{ messages | map(attribute='role') | join(',') }} {{ ns.last }}
{%- filter upper %}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{%- endfilter %}
{{ '{:02d}|{a}|{}'.format(7, 8, a='x 2024') }}{{ 'in 2024: %s, 5 * 3 %%' % 'x' }}
{%- set block %}{{ "%05.1f|%s" % (2.25, 'x') }}{{ 7 // 2 }}{{ 2 ** 5 }}{{ [1] + [2] }}{% endset %}
{{ block }}{{ undefined_name }}{{ none }}{{ true }}{{ 'a-b'.replace('-', '+') }}{{ 'x' * 3 }}
{% with a = [3, 1, 2] | sort %}{{ a | first }}{{ a | sum }}{{ a[-1] }}{% endwith %}
{% if add_generation_prompt %}
    {{- '<assistant>' }}{{ '<think>\\n' if enable_thinking is not false }}
{% endif %}
"""


def reference(source: str, messages: list[Any], **variables: Any) -> str:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    variables.setdefault("add_generation_prompt", True)
    rendered, _ = utils.render_jinja_template([messages], chat_template=source, **variables)
    return str(rendered[0])


@pytest.mark.parametrize("messages", [ONE, TURNS[:2], TURNS[:3], TURNS])
@pytest.mark.parametrize("variables", [{}, {"tools": TOOLS}, {"enable_thinking": False}])
@pytest.mark.parametrize("generation", [True, False])
def test_constructs_equal_transformers(
    messages: list[Any], variables: dict[str, Any], generation: bool
) -> None:
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    plain = [{k: v for k, v in m.items() if v is not None} for m in messages]
    want = reference(CONSTRUCTS, plain, add_generation_prompt=generation, **names, **variables)
    got = ChatTemplate(CONSTRUCTS, names).render(
        messages, add_generation_prompt=generation, **variables
    )
    assert got == want


@pytest.mark.parametrize("messages", [ONE, TURNS[:2], [*TURNS[:1], *ONE]])
def test_smollm2_equals_transformers(messages: list[Any]) -> None:
    source = smollm2_metadata()["tokenizer.chat_template"]
    assert ChatTemplate(source).render(messages) == reference(source, messages)


LOOP = "{% for i in range(100000) %}"
HOSTILE = {
    "nested loops": LOOP * 2 + "{% endfor %}{% endfor %}",
    "long output": LOOP + "x" * 5000 + "{% endfor %}",
    "long block": "{% set a %}" + LOOP + "x" * 5000 + "{% endfor %}{% endset %}",
    "repetition": "{{ 'a' * 10**10 }}",
    "list repetition": "{{ ([1] * 10**9) | length }}",
    "power": "{{ 9 ** 99999999 }}",
    "squares": "{% set ns = namespace(x=9) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}"
    "{% endfor %}",
    "doubling text": "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}",
    "doubling sum": "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "doubling list": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "doubling argument": "{% macro f(x, n) %}{% if n %}{{ f([x, x], n - 1) }}{% else %}{{ x }}"
    "{% endif %}{% endmacro %}{{ f([1], 60) }}",
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "recursive loop": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "endless block": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "filter center": "{{ 'a' | center(10**9) }}",
    "method center": "{{ 'a'.center(10**9) }}",
    "width": "{{ '%1000000000d' % 1 }}",
    "width given": "{{ '%*d' % (1000000000, 1) }}",
    "filter width": "{{ '%1000000000d' | format(1) }}",
    "method format": "{{ '{:1000000000}'.format(1) }}",
    "method format, nested": "{{ '{:{}}'.format(1, 10**9) }}",
    "method format, many": "{{ ('{:999}' * 100000).format(*range(100000)) }}",
    "method format_map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "precision": "{{ '%.1000000000f' % 1.5 }}",
    "bytes": "{{ (5).to_bytes(1000000000, 'big') }}",
    "indent": "{{ 'a\n' | indent(10**9) }}",
    "json indent": "{{ [1] | tojson(indent=10**9) }}",
    "round": "{{ 1.5 | round(10**9) }}",
    "date": "{{ strftime_now('%1000000000Y') }}",
    "range": "{{ range(10**9) | list }}",
    "replace": "{{ ('y' * 1000).replace('y', 'z' * 100000) }}",
    "replace filter": "{{ ('y' * 1000) | replace('y', 'z' * 100000) }}",
    "join": "{{ ('x' * 100000).join(range(100000) | map('string')) }}",
    "join filter": "{{ range(100000) | join('x' * 100000) }}",
    "sum of lists": "{{ [[1] * 1000] * 1000 | sum(start=[]) }}",
    "deep nesting": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep blocks": "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "many loops": "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
    "class": "{{ ().__class__.__bases__ }}",
    "globals": "{{ namespace.__init__.__globals__ }}",
    "mutation": "{{ messages.append(1) }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% from 'os' import path %}",
    "syntax": "{% for %}",
    "attribute of nothing": "{{ nothing.at_all }}",
    "refusal": "{{ raise_exception('only user messages') }}",
    "large": "x" * 2_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_stopped(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(TextError) as found:
        ChatTemplate(HOSTILE[name], where="the template of X").render(ONE)
    assert str(found.value).startswith("the template of X: ")
    assert len(str(found.value)) < 300
    assert time.monotonic() - began < 30  # far less on an idle machine


def test_a_template_cannot_see_past_the_sandbox() -> None:
    for source in (
        "{{ messages[0].__class__ }}",
        "{{ ''|attr('__class__') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ '{0.__class__}'.format(1) }}",
    ):
        assert ChatTemplate(source).render(ONE) == ""


def test_a_long_conversation_is_within_the_budget() -> None:
    messages = [{"role": "user", "content": "word " * 6000}] * 100  # three million characters
    assert len(ChatTemplate(CONSTRUCTS, {"bos_token": ""}).render(messages)) > 3_000_000 - 10_000


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (["hi"], r"messages\[0\] is str"),
        ([{"content": "x"}], r"messages\[0\].role is None"),
        ([{"role": "user", "content": object()}], "expected JSON values"),
    ],
)
def test_wrong_messages(messages: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        ChatTemplate("x").render(messages)


def test_where_templates_are_found(tmp_path: Path) -> None:
    assert read_template(tmp_path, {}) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "one {{ bos_token }}"}))
    found = read_template(tmp_path, {"bos_token": "B"})
    assert found is not None and found.render([]) == "one B"
    named = [{"name": "default", "template": "two"}, {"name": "tool_use", "template": "three"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert (found := read_template(tmp_path, {})) and found.source == "two"
    assert (found := read_template(tmp_path, {}, tools=True)) and found.source == "three"
    (tmp_path / "chat_template.jinja").write_text("four")
    assert (found := read_template(tmp_path, {})) and found.source == "four"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xff")
    with pytest.raises(Error, match=r"chat_template\.jinja"):
        read_template(tmp_path, {})
    (tmp_path / "chat_template.jinja").unlink()
    config.write_text(json.dumps({"chat_template": 5}))
    with pytest.raises(TextError, match="chat_template is int"):
        read_template(tmp_path, {})
