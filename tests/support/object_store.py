"""An object store of the tests' own: moto's server as a process on loopback.

It needs packages of versions that ours do not go with, so it has a folder of its own (``make test-database``
fills it, and names it in GAL_OBJECT_STORE).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

from patience import LONGEST

KEYS = {
    "AWS_ACCESS_KEY_ID": "gal",
    "AWS_SECRET_ACCESS_KEY": "Tell-n0body-either!",
    "AWS_EC2_METADATA_DISABLED": "true",
}
PROGRAM = "import sys; from moto.server import main; main(sys.argv[1:])"


def packages() -> Path | None:
    """Where moto is; None where it is not installed."""
    found = Path(os.environ.get("GAL_OBJECT_STORE", ""))
    return found if (found / "moto").is_dir() else None


class ObjectStore:
    """A server that speaks S3."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-c", PROGRAM, "-H", "127.0.0.1", "-p", str(port)]
        plain = {"PYTHONPATH": str(packages()), "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            command, env=os.environ | KEYS | plain, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + LONGEST
        while True:
            try:
                urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=LONGEST).close()
                return self
            except OSError:
                assert self._process.poll() is None, "the object store ended"
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def system(self) -> Any:
        """The store as a file system that writes."""
        from pyarrow import fs

        return fs.S3FileSystem(
            endpoint_override=self.endpoint.split("://")[1],
            scheme="http",
            region="us-east-1",
            access_key=KEYS["AWS_ACCESS_KEY_ID"],
            secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            allow_bucket_creation=True,
        )
