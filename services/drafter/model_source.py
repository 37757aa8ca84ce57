"""Loads the models of a drafter from directories under its model roots. Blocks; loads torch."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minedraft.errors import IncompatibleWorkerError, ModelError, PermissionDeniedError
from minedraft.fingerprint import tokenizer_fingerprint
from minedraft.model.loader import load_runner
from minedraft.security.paths import resolve_under

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.model.runner import ModelRunner
    from minedraft.services.drafter.config import DrafterConfig


@contextmanager
def _refused() -> Iterator[None]:
    """Let who ordered a swap read what is wrong with the model; alone it never crosses the wire."""
    try:
        yield
    except ModelError as err:
        raise IncompatibleWorkerError(str(err)) from err


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Loads models the way a drafter is configured.

    Args:
        config: dtype, pool, device, roots.
    """

    config: DrafterConfig

    def first(self) -> ModelRunner:
        """The model of the configuration, which the operator named; roots do not apply."""
        return self._load(self.config.model)

    def fingerprint(self, model: str) -> str:
        """Fingerprint of a model's tokenizer; "" without one.

        Raises:
            PermissionDeniedError: not under a root.
            IncompatibleWorkerError: its files cannot be used.
        """
        with _refused():
            return tokenizer_fingerprint(self._resolve(model))

    def load(self, model: str) -> ModelRunner:
        """A model, ready to run.

        Raises:
            PermissionDeniedError: not under a root.
            IncompatibleWorkerError: it cannot be served.
        """
        with _refused():
            return self._load(str(self._resolve(model)))

    def _load(self, model: str) -> ModelRunner:
        return load_runner(
            model,
            dtype=self.config.dtype,
            kernels=self.config.kernels,
            num_blocks=self.config.num_blocks,
            block_size=self.config.block_size,
            device=self.config.device,
        )

    def _resolve(self, model: str) -> Path:
        roots = [Path(root) for root in self.config.model_roots]
        first = Path(self.config.model)
        if not roots and first.is_dir():
            roots = [first.resolve().parent]
        try:
            return resolve_under(roots, model)
        except PermissionDeniedError as err:
            raise PermissionDeniedError(
                f"{err}; the drafter's --model-roots says where a swap may find models"
            ) from None
