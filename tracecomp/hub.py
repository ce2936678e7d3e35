"""The names of ``torch.hub``: models from folders and repositories on disk, weights from files and addresses."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from tracecomp.base.errors import at_user_line, type_name
from tracecomp.serialization import load as _load_file

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_CHUNK = 1 << 16
"""Bytes between two updates of a download's hash and progress bar."""
_folder: str | None = None


def _get_torch_home() -> str:
    """The cache folder: ``$TORCH_HOME``, or ``torch`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder for repositories and weights."""
    return _folder if _folder is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Use ``d`` for repositories and weights."""
    global _folder
    _folder = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Write what ``url`` (http, https or file) holds to ``dst``; RuntimeError when its SHA-256 begins otherwise."""
    target = Path(dst).expanduser()
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as partial:
        try:
            with urlopen(Request(url, headers={"User-Agent": "tracecomp.hub"})) as source:
                while chunk := source.read(_CHUNK):
                    partial.write(chunk)
                    digest.update(chunk)
            partial.close()
            found = digest.hexdigest()
            if hash_prefix is not None and not found.startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
            shutil.move(partial.name, target)
        finally:
            Path(partial.name).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: object = None, progress: bool = True,
    check_hash: bool = False, file_name: str | None = None, weights_only: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """The object in the file that ``url`` names, downloaded to ``model_dir`` unless it is there already.

    ``weights_only`` is that of ``load``, and on unless it is given: in PyTorch such files may run code.
    With ``check_hash``, the name is ``name-<first digits of the SHA-256>.ext`` and must agree.
    """
    folder = Path(model_dir if model_dir is not None else os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    cached = folder / name
    if not cached.exists():
        sys.stderr.write(f'Downloading: "{url}" to {cached}\n')
        match = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, str(cached), match[1] if match else None, progress)
    loaded: dict[str, Any] = _load_file(cached, map_location=map_location, weights_only=weights_only)
    return loaded


# ---- repositories: a folder with ``hubconf.py``, whose public functions are entry points


_TRUSTED_OWNERS = ("facebookresearch", "facebookincubator", "pytorch", "fairinternal")
"""Owners whose repositories need no confirmation, as in PyTorch."""


def _check_trust(owner: str, name: str, there: bool, trust: bool | str | None) -> None:
    """RuntimeError unless the user trusts a repository, whose code will run; the user may confirm.

    ``trust``: True without a question, False asks, "check" asks unless it was trusted earlier or is ``there`` already.
    """
    told = Path(get_dir()) / "trusted_list"
    known = told.read_text().split() if told.exists() else []
    trusted = f"{owner}_{name}" in known or there or owner in _TRUSTED_OWNERS
    if trust is False or (trust in ("check", None) and not trusted):
        question = f"The repository {owner}/{name} is not trusted. Download it and run its code? (y/N) "
        try:
            answer = input(question).strip().lower()
        except EOFError:  # not interactive
            answer = "n"
        if answer not in ("y", "yes"):
            raise RuntimeError(
                at_user_line(f"hub: untrusted repository {owner}/{name}; trust_repo=True runs its code without asking")
            )
    if not trusted:
        told.write_text("".join(f"{line}\n" for line in [*known, f"{owner}_{name}"]))


def _github_folder(repo: str, force_reload: bool, trust: bool | str | None) -> Path:
    """The folder of ``owner/name[:branch]``, downloaded from GitHub unless it is in the cache."""
    match = re.fullmatch(r"([^/:]+)/([^/:]+)(?::(.+))?", repo)
    if match is None:
        raise ValueError(at_user_line(f"hub: expected a repository as owner/name or owner/name:branch, got {repo!r}"))
    owner, name, branch = match[1], match[2], match[3] or "main"
    folder = Path(get_dir()) / f"{owner}_{name}_{branch.replace('/', '_')}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    _check_trust(owner, name, folder.exists(), trust)
    if folder.exists() and not force_reload:
        return folder
    archive = folder.with_suffix(".zip")
    url = f"https://github.com/{owner}/{name}/zipball/{branch}"
    try:
        download_url_to_file(url, str(archive))
    except URLError as error:
        raise RuntimeError(
            f"hub: {url} cannot be downloaded: {error.reason}. Load a copy on disk with source='local'"
        ) from error
    with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked, zipfile.ZipFile(archive) as source:
        source.extractall(unpacked)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(str(next(Path(unpacked).iterdir())), folder)
    archive.unlink()
    return folder


@contextmanager
def _hubconf(repo: str, source: str, force_reload: bool, trust: bool | str | None) -> Iterator[ModuleType]:
    """The module ``hubconf`` of a repository, whose folder is importable meanwhile."""
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    folder = Path(repo).expanduser() if source == "local" else _github_folder(repo, force_reload, trust)
    spec = importlib.util.spec_from_file_location("hubconf", folder / "hubconf.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
        missing = [n for n in getattr(module, "dependencies", ()) if importlib.util.find_spec(n) is None]
        if missing:
            raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
        yield module
    finally:
        sys.path.remove(str(folder))


def _entry(module: ModuleType, name: str) -> Any:
    if not isinstance(name, str):
        raise ValueError(f"hub: the name of an entry point must be str, not {type_name(name)}")
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def load(
    repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: bool | str | None = "check",
    force_reload: bool = False, verbose: bool = True, skip_validation: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """Return the result of the entry point ``model`` of a repository for the other arguments.

    A repository on GitHub contains foreign code: the user has to confirm a new one, unless ``trust_repo`` is True.
    RuntimeError without confirmation.
    """
    with _hubconf(repo_or_dir, source, force_reload, trust_repo) as module:
        return _entry(module, model)(*args, **kwargs)


def help(
    github: str, model: str, force_reload: bool = False, source: str = "github", *,
    trust_repo: bool | str | None = "check", **options: Any,
) -> str | None:  # fmt: skip
    """The docstring of an entry point."""
    with _hubconf(github, source, force_reload, trust_repo) as module:
        text: str | None = _entry(module, model).__doc__
        return text


def list(
    github: str, force_reload: bool = False, source: str = "github", *, trust_repo: bool | str | None = "check",
    **options: Any,
) -> Any:  # fmt: skip
    """The names of all entry points."""
    with _hubconf(github, source, force_reload, trust_repo) as module:
        return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
