"""What a site says of itself to its NVFlare (which home is its own, and who may ask), and jobs without code.

The file ``gal.toml`` in the site's folder ``local``, which no job can change::

    label_holder = "clinic"
    home = "/srv/gal/lab"

In NVFlare's simulator all sites share one folder: ``{site}`` in a home stands for the name of each of them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from gal.errors import ConfigurationError

FILE = "gal.toml"
EXECUTOR = "gal.node.runtime.nvflare.executor.OrganizationExecutor"
CONTROLLER = "gal.node.runtime.nvflare.controller.LabelHolderController"

TASK, PARCEL = "gal", "parcel"
"""The name of NVFlare's task that carries a parcel, and the parcel's in it."""
LOOK = 0.05
"""Seconds between a site's looks for what it is asked: NVFlare's own 2 s would be those of a round."""
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


class SiteSettings(BaseModel):
    """One site's own settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label_holder: str
    """Whom its NVFlare server works for; nobody else can ask."""
    home: str
    """The home folder of its node: key, cards, tasks, policy, audit."""


def read_settings(local: Path, site: str | None) -> tuple[Path, str]:
    """Home folder and label holder of a site, by its folder ``local``; ``site``: None at the server."""
    path = local / FILE
    try:
        found = SiteSettings(**tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(
            f"there is no {FILE} in {local}: gal.node.runtime.nvflare.settings.prepare_site writes it"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigurationError(f"{path}: {'.'.join(map(str, first['loc']))} {first['msg']}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return Path(found.home.replace("{site}", site or found.label_holder)), found.label_holder


def prepare_site(local: Path, *, label_holder: str, home: Path) -> None:
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
        rights["permissions"] = {
            # A right to everything is spelled out first.
            role: (dict(given) if isinstance(given, Mapping) else dict.fromkeys(RIGHTS, given))
            | {"byoc": "none"}
            for role, given in rights.get("permissions", {}).items()
        }
        write_json(local / "authorization.json", rights)
    write_json(local / "resources.json", resources)
    text = f"label_holder = {json.dumps(label_holder)}\nhome = {json.dumps(str(home))}\n"
    (local / FILE).write_text(text, encoding="utf-8")
    read_settings(local, label_holder)  # what was passed in is checked by who reads it


def _read(local: Path, name: str) -> dict[str, Any]:
    """A file of the site, or the one that it was provisioned with."""
    for path in (local / name, local / f"{name}.default"):
        if path.is_file():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
    return {}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A file as NVFlare reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_job(folder: Path, task: str, organizations: Sequence[str], **options: Any) -> Path:
    """Write the folder of a job that learns a task; ``options`` are those of the controller.

    No organization is mandatory and one is enough for NVFlare to start: whether enough are there is decided
    by the quorum, as between nodes. (NVFlare's own ``FedJob`` would copy the package into the job, which is
    then one that brings code.)
    """
    arguments = {"task": task} | options
    server = {
        "format_version": 2,
        "server": {"task_request_interval": LOOK},
        "workflows": [{"id": "gal", "path": CONTROLLER, "args": arguments}],
    }
    executor = {"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {}}}
    client = {
        "format_version": 2,
        "executors": [executor],
        "task_result_filters": [],
        "task_data_filters": [],
    }
    meta = {
        "name": f"gal-{task}",
        "resource_spec": {},
        "min_clients": 1,
        "deploy_map": {"label_holder": ["server"], "organization": list(organizations)},
    }
    write_json(folder / "meta.json", meta)
    write_json(folder / "label_holder" / "config" / "config_fed_server.json", server)
    write_json(folder / "organization" / "config" / "config_fed_client.json", client)
    return folder
