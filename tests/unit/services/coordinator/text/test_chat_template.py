"""Chat templates: formatted as transformers formats them, and bounded."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from minedraft.errors import InvalidRequestError, ModelError
from minedraft.services.coordinator.text.chat_template import ChatTemplate

CHAT = [("system", "Be <brief>."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye & é")]
# The forms that real templates are made of (SmolLM2 and Qwen; Llama 2 and Mistral; Gemma).
CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\nYou are helpful<|im_end|>\n' }}{% endif %}
{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}
    {% if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{% endif %}"""
INST = """{{ bos_token }}{% for m in messages %}
    {%- if m.role == 'system' %}{% continue %}{% endif %}
    {%- if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]
    {%- else %} {{ m.content }}{{ eos_token }}{% endif %}
{%- endfor %}"""
CHATML_PROMPT = (
    "<|im_start|>system\nBe <brief>.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye & é<|im_end|>\n"
    "<|im_start|>assistant\n\n"  # trim_blocks trims after blocks, not after expressions
)
NAMESPACE = """{%- set ns = namespace(n=0) -%}
{%- for m in messages %}{% set ns.n = ns.n + 1 %}{{ m['role'] | upper }}{{ ns.n }}: {{ m | tojson }}
{% endfor %}{%- if tools is not none %}TOOLS{% endif %}{{ messages[1:] | length }}"""
NAMESPACE_PROMPT = """SYSTEM1: {"role": "system", "content": "Be <brief>."}
USER2: {"role": "user", "content": "Hi"}
ASSISTANT3: {"role": "assistant", "content": "Hello"}
USER4: {"role": "user", "content": "Bye & é"}
3"""
GENERATION = """{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}
{% endgeneration %}{% else %}{{ m.content }}
{% endif %}{% endfor %}"""
BREAK = """{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}
{{ m.content }}|{% endfor %}"""
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CHATML, CHATML_PROMPT),
        (INST, "<s>[INST] Hi [/INST] Hello</s>[INST] Bye & é [/INST]"),
        (NAMESPACE, NAMESPACE_PROMPT),
        (GENERATION, "Be <brief>.\nHi\nHello\nBye & é\n"),
        (BREAK, "Be <brief>.|Hi|"),
        ("{{ pad_token }}{{ bos_token }}", "<s>"),
    ],
    ids=["chatml", "inst", "namespace", "generation", "break", "unset token"],
)
def test_templates_render(source, expected):
    assert ChatTemplate(source, special_tokens=TOKENS).render(CHAT) == expected


@pytest.mark.parametrize("source", [CHATML, INST, NAMESPACE, GENERATION, BREAK])
def test_the_prompt_is_the_one_that_transformers_makes(source):
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = [{"role": role, "content": content} for role, content in CHAT]
    [theirs], _ = utils.render_jinja_template(
        [messages], chat_template=source, add_generation_prompt=True, **TOKENS
    )
    assert ChatTemplate(source, special_tokens=TOKENS).render(CHAT) == theirs


def test_the_clock_of_a_template_is_an_argument():
    template = ChatTemplate(
        "{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2026, 3, 4, tzinfo=UTC)
    )
    assert template.render(CHAT) == "04 Mar 2026"
    assert ChatTemplate("{{ strftime_now('%Y') }}").render(CHAT).isdigit()


def test_a_template_that_refuses_the_conversation_is_the_callers_error():
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidRequestError, match="roles must alternate") as caught:
        template.render(CHAT)
    assert caught.value.field == "chat.messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[99].content }}",
        "{{ 1 + messages[0].content }}",
        "{{ 1 // 0 }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(x=1) }}",
        "{{ ''.__class__.__mro__ }}{{ ().__class__.__bases__[0].__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ 'a' * 999999999 }}",
        "{{ 999999999 * [1] }}",
        "{{ 9 ** 99999999 }}",
        "{% for i in range(999999999) %}x{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{{ 'x' * 9 }}{% endfor %}{% endfor %}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_hostile_or_broken_template_fails_without_harm(source):
    with pytest.raises(InvalidRequestError) as caught:
        ChatTemplate(source).render(CHAT)
    assert caught.value.field == "chat.messages"


def test_content_is_data_and_not_template():
    text = "{{ 7 * 7 }}{% raw %}"
    assert ChatTemplate("{{ messages[0].content }}").render([("user", text)]) == text


def test_multiplying_numbers_is_allowed():
    assert ChatTemplate("{{ 6 * 7 }}{{ '=' * 3 }}").render(CHAT) == "42==="


@pytest.mark.parametrize("source", ["{% for %}", "{{", "{% unknown %}", "{% generation %}"])
def test_a_template_that_is_no_jinja_is_a_model_error(source):
    with pytest.raises(ModelError, match="no valid Jinja"):
        ChatTemplate(source)


def test_nothing_leaks_from_one_rendering_into_the_next():
    template = ChatTemplate("{% set x = (x | default(0)) + 1 %}{{ x }}{{ messages | length }}")
    assert [template.render(CHAT[:1]), template.render(CHAT)] == ["11", "14"]


@pytest.mark.parametrize(
    "source",
    [
        "{{ '%4000000000d' % 1 }}",
        "{{ 'x' | center(4000000000) }}",
        "{% set a = 'x' | center(4000000000) %}",
        "{% if 'x' | center(4000000000) %}{% endif %}",
        "{% for i in range(99999) | list %}{{ i ~ 'x' | center(4000000000) }}{% endfor %}",
    ],
)
def test_reading_a_template_evaluates_nothing_of_it(source):
    """It is read by the coordinator itself, which has no bounds to do so in."""
    begin = time.process_time()
    ChatTemplate(source)
    assert time.process_time() - begin < 0.5  # measured: 1 ms; 2 s and more if it is evaluated
