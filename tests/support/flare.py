"""NVFlare's own proof-of-concept network on loopback: a server and sites as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from patience import LONGEST, patient, until
from ports import free_port

ADMIN = "admin@nvidia.com"
RUN = {
    "server": ["nvflare.private.fed.app.server.server_train", "-s", "fed_server.json"],
    "client": ["nvflare.private.fed.app.client.client_train", "-s", "fed_client.json"],
}


def project(port: int, sites: Sequence[str]) -> dict[str, Any]:
    """A project of NVFlare's with a server on this port."""
    build = "nvflare.lighter.impl"
    server = {"name": "server", "type": "server", "org": "gal", "fed_learn_port": port}
    return {
        "api_version": 3,
        "name": "gal",
        "participants": [
            server | {"default_host": "localhost"},
            {"name": ADMIN, "type": "admin", "org": "gal", "role": "project_admin"},
            *({"name": one, "type": "client", "org": "gal"} for one in sites),
        ],
        "builders": [
            {
                "path": f"{build}.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {"path": f"{build}.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": f"{build}.cert.CertBuilder"},
            {"path": f"{build}.signature.SignatureBuilder"},
        ],
    }


@dataclass
class Flare:
    """A server and sites; ``start`` runs them, the end of the block ends them."""

    root: Path
    sites: Sequence[str]
    path: Path | None = None
    """Where the sites find modules of their own."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True)
        (self.root / "project.yml").write_text(json.dumps(project(free_port(), self.sites)))
        self._environment = os.environ | {
            "HOME": str(self.root),
            "NVFLARE_POC_WORKSPACE": str(self.root / "poc"),
            "OMP_NUM_THREADS": "1",
            # So long a job that is over waits for the word of a site that is dead; NVFlare's own are 900 s.
            "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "5",
            "PYTHONPATH": os.pathsep.join(
                [
                    *os.environ.get("PYTHONPATH", "").split(os.pathsep),
                    *([] if self.path is None else [str(self.path)]),
                ]
            ),
        }
        command = "from nvflare.cli import main; main()"
        words = ["poc", "prepare", "--force", "-i", str(self.root / "project.yml")]
        subprocess.run(
            [sys.executable, "-c", command, *words],
            cwd=self.root,
            env=self._environment,
            check=True,
            capture_output=True,
            timeout=LONGEST,
        )
        settings = self.folder("server") / "startup" / "fed_server.json"
        # The name of a server is what it binds to, and only that of loopback is no other machine's.
        settings.write_text(settings.read_text().replace('"server:', '"localhost:'))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a site's jobs are in its group
            process.wait(LONGEST)

    def folder(self, name: str) -> Path:
        """The startup kit of one participant."""
        return self.root / "poc" / "gal" / "prod_00" / name

    def local(self, name: str) -> Path:
        """What belongs to the operator of a site."""
        return self.folder(name) / "local"

    def start(self, *names: str) -> None:
        """Run the server or sites, each in a group of processes of its own."""
        for name in names:
            module, *words = RUN["server" if name == "server" else "client"]
            said = ["--set", "secure_train=true", f"uid={name}", "org=gal", "config_folder=config"]
            with (self.root / f"{name}.log").open("ab") as output:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-u", "-m", module, "-m", str(self.folder(name)), *words, *said],
                    cwd=self.folder(name),
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )

    def kill(self, name: str) -> None:
        """End a site and its job as a power failure would."""
        os.killpg(self.running[name].pid, signal.SIGKILL)
        self.running[name].wait(LONGEST)

    def said(self, name: str) -> str:
        """What a site has said so far, its jobs included."""
        return (self.root / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def listening(self) -> set[str]:
        """Addresses at which these processes listen."""
        said = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
        groups = {one.pid for one in self.running.values()}
        lines = [line for line in said.splitlines() if any(f"pid={pid}," in line for pid in groups)]
        assert lines
        return {line.split()[3].rpartition(":")[0] for line in lines}

    def is_there(self, session: Session, *names: str) -> bool:
        """Whether these sites are registered with the server."""
        return set(names) <= {one.name for one in session.get_system_info().client_info}

    @contextmanager
    def session(self) -> Iterator[Session]:
        """An administrator who is logged in, once all sites are there."""
        found = new_secure_session(ADMIN, str(self.folder(ADMIN)), timeout=patient(60))
        try:
            until(lambda: self.is_there(found, *self.sites), "all sites to register")
            yield found
        finally:
            found.close()

    def ended(self, session: Session, job: str) -> str:
        """Wait for the end of a job; how NVFlare says that it ended."""

        def status() -> str:
            return str(session.get_job_meta(job).get("status", ""))

        until(lambda: status().startswith(("FINISHED", "ABORTED", "REJECTED")), f"the job {job} to end")
        return status()
