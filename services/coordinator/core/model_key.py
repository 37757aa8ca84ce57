"""Names a model on a device: two with equal keys cost the same. Pure values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from minedraft.types import ModelInfo

_MAX_WORD_CHARS = 256


class ModelKey(NamedTuple):
    """What the costs of a model's steps depend on."""

    weights_fingerprint: str = ""
    dtype: str = ""
    device: str = ""
    kernels: str = ""
    kind: str = ""
    """Of a drafter."""

    @classmethod
    def of(cls, model: ModelInfo) -> ModelKey:
        """Return the key of a worker's model."""
        return cls(
            model.weights_fingerprint or model.name,
            model.dtype,
            model.device,
            model.kernels,
            model.drafter_kind,
        )

    @classmethod
    def from_json(cls, form: object, name: str) -> ModelKey:
        """Read what `_asdict` returned.

        Raises:
            ConfigError: it is something else; names the field, which begins with `name`.
        """
        if not isinstance(form, dict) or set(form) != set(cls._fields):
            raise ConfigError(f"{name}: want an object with {', '.join(cls._fields)}")
        for field, value in form.items():
            if not isinstance(value, str) or len(value) > _MAX_WORD_CHARS:
                raise ConfigError(
                    f"{name}.{field}: want text of at most {_MAX_WORD_CHARS} characters"
                )
        return cls(**form)


PairKey: TypeAlias = tuple[ModelKey, ModelKey]
"""Target and drafter; a drafter with empty fields: there was none."""
