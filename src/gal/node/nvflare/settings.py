"""What a site says of itself to its NVFlare: which home is its own, and who may ask.

The file ``gal.toml`` in the site's folder ``local``, which no job can change::

    label_holder = "clinic"
    home = "/srv/gal/lab"

In NVFlare's simulator all sites share one folder: ``homes`` names the folder with a home for each of them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gal.errors import ConfigurationError

FILE = "gal.toml"
EXECUTOR = "gal.node.nvflare.executor.OrganizationExecutor"
CONTROLLER = "gal.node.nvflare.controller.LabelHolderController"

TASK, PARCEL = "gal", "parcel"
"""The name of NVFlare's task that carries a parcel, and the parcel's in it."""


@dataclass(frozen=True)
class SiteSettings:
    """One site's own settings."""

    home: Path
    """The home folder of its node: key, cards, tasks, policy, audit."""
    label_holder: str
    """Whom its NVFlare server works for; nobody else can ask."""


def read_settings(local: Path, site: str | None) -> SiteSettings:
    """The settings in the folder ``local`` of a site; ``site`` is None at the label holder's server."""
    path = local / FILE
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"there is no {FILE} in {local}: gal.node.nvflare.settings.prepare_site writes it"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    holder = found.get("label_holder")
    own, shared = found.get("home"), found.get("homes")
    words = [one for one in (holder, own, shared) if one is not None]
    wrong = set(found) - {"label_holder", "home", "homes"}
    if (
        wrong
        or holder is None
        or (own is None) == (shared is None)
        or not all(isinstance(w, str) for w in words)
    ):
        raise ConfigurationError(
            f"{path} must have label_holder and either home or homes, as texts, and nothing else; it has "
            f"{', '.join(sorted(found)) or 'nothing'}"
        )
    return SiteSettings(Path(own) if own is not None else Path(str(shared)) / (site or holder), holder)


def prepare_site(
    local: Path, *, label_holder: str, home: Path | None = None, homes: Path | None = None
) -> None:
    """Let a site's NVFlare run GAL's classes, and no code that a job brings.

    Writes ``gal.toml``, adds the two classes to the allow list of ``resources.json``, and takes the right to
    bring code (``byoc``) from everybody in ``authorization.json``: a job with code would not be looked up in
    the allow list, so that neither helps without the other.
    """
    resources = _read(local, "resources.json")
    allowed = list(resources.get("class_allow_list", []))
    resources["class_allow_list"] = [*allowed, *(one for one in (EXECUTOR, CONTROLLER) if one not in allowed)]
    resources["class_list_enforcement_mode"] = "enforce"
    rights = _read(local, "authorization.json")
    if rights:
        permissions = rights.get("permissions", {})
        rights["permissions"] = {role: _without_code(given) for role, given in permissions.items()}
        _write(local / "authorization.json", rights)
    _write(local / "resources.json", resources)
    where = f"home = {json.dumps(str(home))}" if homes is None else f"homes = {json.dumps(str(homes))}"
    text = f"label_holder = {json.dumps(label_holder)}\n{where}\n"
    (local / FILE).write_text(text, encoding="utf-8")
    read_settings(local, label_holder)  # what was passed in is checked by who reads it


def _without_code(given: Any) -> Any:
    """What a role may do, without bringing code; a right to everything is spelled out first."""
    rights = dict(given) if isinstance(given, Mapping) else dict.fromkeys(RIGHTS, given)
    return rights | {"byoc": "none"}


RIGHTS = (
    "submit_job",
    "clone_job",
    "manage_job",
    "download_job",
    "view",
    "operate",
    "shell_commands",
    "server-predeployed-flwr",
)
"""What NVFlare's roles may be allowed, besides bringing code."""


def _read(local: Path, name: str) -> dict[str, Any]:
    """A file of the site, or the one that it was provisioned with."""
    for path in (local / name, local / f"{name}.default"):
        if path.is_file():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
    return {}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
