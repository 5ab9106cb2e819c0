"""What is deployed: containers without rights, organizations that only dial out, and commands that exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gal.cli.app import COMMANDS, command_named

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: it comes with the extra dev")

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
COMPOSE = ROOT / "compose.yaml"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PAGE = ROOT / "docs/how-to/production.md"
UNITS = sorted((ROOT / "docs").glob("*.service"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def of_kind(path: Path, kind: str) -> dict[str, Any]:
    [found] = [one for one in documents(path) if one["kind"] == kind]
    return found


def pod_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = of_kind(path, "StatefulSet")["spec"]["template"]["spec"]
    return found


# Commands


def problem_of(words: list[str]) -> str:
    """What is wrong with a command of gal; empty where the command line knows it."""
    if not words or words[0] not in COMMANDS:
        return f"there is no command {words[:1]}"
    command: Any = command_named(words[0])
    while hasattr(command, "commands") and len(words) > 1 and words[1] in command.commands:
        words, command = words[1:], command.commands[words[1]]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
    unknown = [word for word in words[1:] if word.startswith("-") and word.split("=")[0] not in known]
    return f"gal {words[0]} has no {unknown}" if unknown else ""


def in_shell(text: str) -> Iterator[list[str]]:
    """The commands of gal in lines of a shell, also inside of containers."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for place, word in enumerate(words):
            if word in {"gal", "/opt/gal/bin/gal"}:
                yield words[place + 1 :]
        image = re.match(r"docker (?:run|compose run) .*?(?:gal-node|--rm (?:clinic|lab|shop)) (\w.*)", line)
        if image:
            yield shlex.split(image[1], comments=True)


def commands() -> list[tuple[str, list[str]]]:
    found = [("Dockerfile", json.loads(one)) for one in re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.M)]
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    found += [(f"compose.yaml {name}", one["command"]) for name, one in services.items() if "command" in one]
    for path in MANIFESTS:
        found += [(path.name, one["args"]) for one in pod_of(path)["containers"]]
        comments = "\n".join(re.findall(r"^#   (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))
        found += [(path.name, one) for one in in_shell(comments)]
    for path in UNITS:
        started = re.findall(r"^ExecStart=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        for line in started:
            inside = re.search(r"sh -c '(?:exec )?(.*)'", line)
            found += [(path.name, one) for one in in_shell(inside[1] if inside else line)]
    for language, block in FENCE.findall(PAGE.read_text(encoding="utf-8")):
        found += [(PAGE.name, one) for one in in_shell("" if language else block)]
    return found


def test_every_command_and_option_exists() -> None:
    wrong = {
        f"{where}: gal {' '.join(words)}": why for where, words in commands() if (why := problem_of(words))
    }
    assert wrong == {}


def test_commands_are_found_everywhere_and_wrong_ones_are_noticed() -> None:
    found = commands()
    assert {where.split()[0] for where, _ in found} == {
        "Dockerfile",
        "compose.yaml",
        PAGE.name,
        *(path.name for path in (*MANIFESTS, *UNITS)),
    }
    asked = {words[0] for _, words in found}
    assert {"serve", "init", "backup", "doctor"} <= asked
    assert problem_of(["serve", "--page-on", "x"]) == "gal serve has no ['--page-on']"
    assert problem_of(["relearn"]) == "there is no command ['relearn']"


# Containers


def test_the_image_has_no_rights_and_says_how_it_is() -> None:
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["python:3.11-slim-bookworm"] * 2
    assert DOCKERFILE.rindex("USER 10001:10001") > DOCKERFILE.rindex("RUN ")
    assert "127.0.0.1:8470/livez" in DOCKERFILE
    extras = re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.MULTILINE)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    for name in re.findall(r"^COPY ([^-\n]+) \./", DOCKERFILE, re.MULTILINE)[0].split():
        assert f"!{name}" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


def test_services_of_compose_have_no_rights_and_only_the_label_holder_a_port() -> None:
    whole = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    services = whole["services"]
    nodes = {name: one for name, one in services.items() if one["image"].startswith("gal-node")}
    assert set(nodes) == {"clinic", "lab", "shop"}
    for one in nodes.values():
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in one["security_opt"]
        assert any(volume.endswith(":/var/lib/gal") for volume in one["volumes"])
    assert [name for name, one in services.items() if "ports" in one] == ["clinic"]
    assert services["lab-database"]["networks"] == ["lab-inside"]
    assert whole["networks"]["lab-inside"]["internal"] is True
    for kind in ("networks", "secrets"):
        used = {name for one in services.values() for name in one.get(kind, ())}
        assert used == set(whole[kind])
    volumes = {one.split(":")[0] for service in services.values() for one in service["volumes"]}
    assert {name for name in volumes if not name.startswith(".")} == set(whole["volumes"])


def test_the_database_of_compose_is_the_one_that_the_lab_reads() -> None:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    data = tomllib.loads((ROOT / "deploy/compose/lab.toml").read_text(encoding="utf-8"))["data"]
    database = services["lab-database"]["environment"]
    user, name = database["POSTGRES_USER"], database["POSTGRES_DB"]
    assert data["source"] == f"postgresql://{user}@lab-database/{name}"
    assert data["password_file"] == database["POSTGRES_PASSWORD_FILE"]
    assert "password" not in data


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_pod_has_no_rights_and_mounts_what_there_is(path: Path) -> None:
    whole, pod = of_kind(path, "StatefulSet")["spec"], pod_of(path)
    assert whole["replicas"] == 1
    assert whole["selector"]["matchLabels"].items() <= whole["template"]["metadata"]["labels"].items()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["automountServiceAccountToken"] is False
    claims = [claim["metadata"] for claim in whole["volumeClaimTemplates"]]
    there = {one["name"] for one in (*pod["volumes"], *claims)}
    for one in (*pod["initContainers"], *pod["containers"]):
        rights = one["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= set(one["resources"]["limits"])
        assert {mount["name"] for mount in one["volumeMounts"]} <= there
    [node] = pod["containers"]
    assert "livez" in str(node["livenessProbe"])
    assert "livez" in str(node["startupProbe"])
    assert [one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one] == [
        f"gal-{whole['template']['metadata']['labels']['app.kubernetes.io/instance']}-identity"
    ]
    assert not [one for one in documents(path) if one["kind"] == "Secret"], "keys stand in no file here"


def test_an_organization_only_dials_out_and_a_label_holder_has_one_port() -> None:
    organization, holder = (
        of_kind(ROOT / f"deploy/kubernetes/{name}.yaml", "NetworkPolicy")["spec"]
        for name in ("organization", "label-holder")
    )
    for name, policy in (("organization", organization), ("label-holder", holder)):
        assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]
        labels = of_kind(ROOT / f"deploy/kubernetes/{name}.yaml", "StatefulSet")["spec"]["selector"]
        assert policy["podSelector"] == labels
        assert all(rule.get("to") and rule.get("ports") for rule in policy["egress"]), "nowhere to everybody"
    assert organization["ingress"] == []
    assert [one["port"] for rule in organization["egress"] for one in rule["ports"]] == [53, 53, 7443, 5432]
    assert [one["port"] for rule in holder["ingress"] for one in rule["ports"]] == [7443]
    kinds = [one["kind"] for one in documents(ROOT / "deploy/kubernetes/organization.yaml")]
    assert "Service" not in kinds
