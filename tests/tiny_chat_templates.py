"""Chat templates of the forms that model directories have, written for the tiny tokenizers."""

from __future__ import annotations

from types import MappingProxyType

TEMPLATES = MappingProxyType(
    {
        # Zephyr's and Qwen 2's form: every turn between two control tokens.
        "turns": (
            "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}{{ eos_token }}\n"
            "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
        ),
        # Llama 2's and Mistral's: words in brackets, trimmed contents.
        "brackets": (
            "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
            "{{ '[INST] ' + m.content | trim + ' [/INST]' }}{% else %}"
            "{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
        ),
        # Qwen 3's and DeepSeek R1's: looks into contents for marks that are no special tokens.
        "reasoning": (
            "{% for m in messages %}{% set content = m.content %}"
            "{% if m.role == 'assistant' and '</think>' in content %}"
            "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
            "{{ '<|turn|>' + m.role + '\n' + content + eos_token + '\n' }}{% endfor %}"
            "<|turn|>assistant\n<think>\n"
        ),
        # Nothing between two contents.
        "bare": "{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}",
    }
)
