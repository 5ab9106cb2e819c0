"""A job for NVFlare that brings names and numbers, and no code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gal.node.nvflare.settings import CONTROLLER, EXECUTOR, TASK, write_json

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
    write_json(folder / "meta.json", meta)
    write_json(folder / "label_holder" / "config" / "config_fed_server.json", server)
    write_json(folder / "organization" / "config" / "config_fed_client.json", client)
    return folder
