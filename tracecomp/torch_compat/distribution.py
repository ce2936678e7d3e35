"""The distribution ``torch`` of an environment: installed from ``site``, removed, inspected; never PyTorch itself.

In a virtual environment pip gets a constraint too. Otherwise ``pip install torchvision`` takes the newest torchvision,
which requires a newer torch, and replaces this one by gigabytes of PyTorch.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import Distribution, MetadataPathFinder
from pathlib import Path

from tracecomp.torch_compat.activate import SITE
from tracecomp.torch_compat.names import TORCH_VERSION

_METADATA = f"torch-{TORCH_VERSION}.dist-info"
_PIN = f"torch=={TORCH_VERSION}\n"
_SETTING = "# by tracecomp: versions that work with this torch\n[global]\nconstraint = {}\n"


def _default() -> Path:
    return Path(sysconfig.get_paths()["purelib"])


def installed(folder: Path) -> Distribution | None:
    """The distribution ``torch`` in ``folder``, whoever made it."""
    MetadataPathFinder().invalidate_caches()
    return next(iter(Distribution.discover(name="torch", path=[str(folder)])), None)


def is_ours(distribution: Distribution) -> bool:
    return (distribution.read_text("INSTALLER") or "").strip() == "tracecomp"


def status(folder: Path | None = None) -> str:
    """Describe in a sentence which ``torch`` an environment has."""
    folder = folder or _default()
    found = installed(folder)
    if found is None:
        there = " (a folder torch without metadata is there)" if (folder / "torch").exists() else ""
        return f"no torch in {folder}{there}"
    whose = "tracecomp" if is_ours(found) else "PyTorch"
    return f"torch {found.version} in {folder} is {whose}"


def install(folder: Path | None = None) -> str:
    """Install the distribution ``torch`` into an environment; FileExistsError if another torch is installed."""
    folder = folder or _default()
    found = installed(folder)
    if (found is not None and not is_ours(found)) or (found is None and (folder / "torch").exists()):
        raise FileExistsError(f"{status(folder)}, and is not changed. Use another environment or 'pip uninstall torch'")
    uninstall(folder)
    written = []
    for source in sorted(p for p in SITE.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        target = folder / source.relative_to(SITE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        digest = urlsafe_b64encode(sha256(source.read_bytes()).digest()).rstrip(b"=").decode()
        written.append(f"{source.relative_to(SITE).as_posix()},sha256={digest},{source.stat().st_size}")
    (folder / _METADATA / "constraints.txt").write_text(_PIN)
    record = folder / _METADATA / "RECORD"
    record.write_text(
        "\n".join([*written, *(f"{_METADATA}/{name},," for name in ("constraints.txt", "RECORD"))]) + "\n"
    )
    return status(folder) + _constrain(folder)


def _pip_settings(folder: Path) -> tuple[Path, str]:
    """The settings file of a virtual environment's pip, and its contents if this package wrote them."""
    constraints = folder / _METADATA / "constraints.txt"
    return Path(sys.prefix) / "pip.conf", _SETTING.format(constraints)


def _constrain(folder: Path) -> str:
    """Have this environment's pip choose versions of libraries that take this torch; a sentence on how it went."""
    path, setting = _pip_settings(folder)
    if folder != _default() or sys.prefix == sys.base_prefix or path.exists():
        return f"; give pip '-c {folder / _METADATA / 'constraints.txt'}', so that pip keeps it"
    path.write_text(setting)
    return f"; {path} makes pip keep it"


def uninstall(folder: Path | None = None) -> str:
    """Remove the files of ``install``; FileExistsError if another torch is installed."""
    folder = folder or _default()
    found = installed(folder)
    if found is None:
        return status(folder)
    if not is_ours(found):
        raise FileExistsError(f"{status(folder)}, and is not changed")
    folders = (folder / "torch", folder / f"torch-{found.version}.dist-info")  # read before it is gone
    path, setting = _pip_settings(folder)
    if path.is_file() and path.read_text() == setting:
        path.unlink()
    for file in found.files or ():
        path = Path(str(found.locate_file(file)))
        path.unlink(missing_ok=True)
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    for made in folders:
        if made.is_dir() and not any(made.iterdir()):
            made.rmdir()
    return status(folder)
