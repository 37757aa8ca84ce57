"""Builds the C kernels into the wheel; without a compiler the wheel is pure Python.

Runs wherever a wheel is built: by `pip install` of an sdist or a checkout, and by `make setup`.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent
COMPILE = ROOT / "minedraft" / "model" / "kernels" / "c" / "compile.py"


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles, adds the objects, and tags the wheel for the platform that they run on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build.

        Args:
            version: `editable` or `standard`.
            build_data: Of the wheel; changed.
        """
        objects = self._build()
        if version == "editable" or not objects:
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(objects)}"
        build_data["force_include"].update(
            {str(path): path.relative_to(ROOT).as_posix() for path in objects}
        )

    def _build(self) -> list[Path]:
        spec = importlib.util.spec_from_file_location("minedraft_compile", COMPILE)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # its dataclasses look there
        spec.loader.exec_module(module)
        try:
            found: list[Path] = module.build()
        except (module.CompileError, OSError) as err:
            self.app.display_warning(f"the C kernels do not compile here: {err}")
            found = []
        if not found:
            self.app.display_warning("no C kernels: models will run with the torch kernels, slower")
        return found


def platform_tag(objects: Sequence[Path]) -> str:
    """Name the platform of objects: manylinux of the newest glibc symbol that they need.

    Without one they were linked with another C library: then it is this machine's own tag.
    """
    needed = [
        int(minor)
        for path in objects
        for minor in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())
    ]
    if needed:
        return f"manylinux_2_{max(needed)}_{platform.machine()}"
    return re.sub(r"[-.]", "_", sysconfig.get_platform())
