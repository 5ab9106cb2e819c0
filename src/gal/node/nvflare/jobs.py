"""A job for NVFlare that brings names and numbers, and no code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gal.node.nvflare.settings import CONTROLLER, EXECUTOR, TASK

LOOK = 0.05
"""Seconds between a site's looks for what it is asked: NVFlare's own 2 s would be those of a round."""


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
    _write(folder / "meta.json", meta)
    _write(folder / "label_holder" / "config" / "config_fed_server.json", server)
    _write(folder / "organization" / "config" / "config_fed_client.json", client)
    return folder


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
