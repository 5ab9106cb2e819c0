"""Settings of an NVFlare site, and the files of a job; NVFlare itself is not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gal.errors import ConfigurationError
from gal.node.runtime.nvflare.settings import (
    CONTROLLER,
    EXECUTOR,
    FILE,
    prepare_site,
    read_settings,
    write_job,
)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_prepared_site_runs_our_classes_and_no_code_of_a_job(tmp_path: Path) -> None:
    rights = {"project_admin": "any", "lead": {"submit_job": "any", "byoc": "any"}, "member": {"view": "any"}}
    (tmp_path / "authorization.json.default").write_text(
        json.dumps({"format_version": "1.0", "permissions": rights})
    )
    resources = {
        "format_version": 2,
        "class_allow_list": ["other.Class"],
        "class_list_enforcement_mode": "warn",
    }
    (tmp_path / "resources.json.default").write_text(json.dumps(resources))
    for _ in range(2):  # once more changes nothing
        prepare_site(tmp_path, label_holder="clinic", home=Path("/srv/gal/lab"))
    found = read(tmp_path / "resources.json")
    assert found["class_allow_list"] == ["other.Class", EXECUTOR, CONTROLLER]
    assert found["class_list_enforcement_mode"] == "enforce"
    permissions = read(tmp_path / "authorization.json")["permissions"]
    assert {role: given["byoc"] for role, given in permissions.items()} == dict.fromkeys(rights, "none")
    assert permissions["project_admin"]["submit_job"] == "any"
    assert read_settings(tmp_path, "lab") == (Path("/srv/gal/lab"), "clinic")


def test_sites_of_a_simulator_share_a_folder(tmp_path: Path) -> None:
    prepare_site(tmp_path, label_holder="clinic", home=Path("/srv/gal/{site}"))
    assert read_settings(tmp_path, "lab")[0] == Path("/srv/gal/lab")
    assert read_settings(tmp_path, None)[0] == Path("/srv/gal/clinic")


@pytest.mark.parametrize(
    "text",
    [
        'home = "/srv"',
        'label_holder = "clinic"',
        'label_holder = "clinic"\nhome = 3',
        'label_holder = "clinic"\nhome = "/srv"\nmore = 1',
        "label_holder",
    ],
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ConfigurationError, match=FILE):
        read_settings(tmp_path, "lab")


def test_a_site_without_settings_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="prepare_site writes it"):
        read_settings(tmp_path, "lab")


def test_a_job_has_names_and_numbers_only(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", "risk", ["lab", "hospital"], quorum=2)
    files = {path.relative_to(job).as_posix() for path in job.rglob("*") if path.is_file()}
    assert files == {
        "meta.json",
        "label_holder/config/config_fed_server.json",
        "organization/config/config_fed_client.json",
    }
    server = read(job / "label_holder/config/config_fed_server.json")
    assert server["workflows"][0]["args"] == {"task": "risk", "quorum": 2}
    client = read(job / "organization/config/config_fed_client.json")
    assert client["executors"][0]["executor"] == {"path": EXECUTOR, "args": {}}
    assert read(job / "meta.json")["deploy_map"]["organization"] == ["lab", "hospital"]
