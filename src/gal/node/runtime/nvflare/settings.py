"""Settings of an NVFlare site, and jobs without code.

The settings are in ``gal.toml`` in the site's folder ``local``, which no job can change::

    label_holder = "clinic"
    home = "/srv/gal/lab"

In NVFlare's simulator all sites share one folder: ``{site}`` in a home stands for the name of each.
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
"""Names of the task with a parcel, and of the parcel in it."""
LOOK = 0.05
"""Seconds between a site's polls: with the 2 s of NVFlare a round would take as long."""
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
"""Rights of NVFlare's roles besides bringing code."""


class SiteSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    label_holder: str
    """The organization that runs its NVFlare server, and the only one to send requests."""
    home: str
    """The home folder of its node."""


def read_settings(local: Path, site: str | None) -> tuple[Path, str]:
    """Home folder and label holder of a site from its folder ``local``; ``site``: None at the server."""
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

    Writes ``gal.toml``, adds the two classes to the allow list of ``resources.json``, and removes the
    right to bring code (``byoc``) from all roles in ``authorization.json``, as the allow list does not apply
    to such code.
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
    read_settings(local, label_holder)  # an error for what it cannot read


def _read(local: Path, name: str) -> dict[str, Any]:
    """A file of the site, or its provisioned default."""
    for path in (local / name, local / f"{name}.default"):
        if path.is_file():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
    return {}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_job(folder: Path, task: str, organizations: Sequence[str], **options: Any) -> Path:
    """Write the folder of a job that learns a task; ``options`` are those of the controller.

    NVFlare starts it with one organization; the quorum decides as between nodes. (``FedJob`` of NVFlare would
    copy the package into the job, which then brings code.)
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
