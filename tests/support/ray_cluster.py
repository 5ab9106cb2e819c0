"""A Ray cluster on this machine: one process with its client port on loopback, which ends with the block.

Ray's own processes listen on every address whatever they are told; a token that only this cluster knows keeps
others out.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from patience import LONGEST

MEGABYTE = 2**20
STARTED = "the cluster is there"


def protect(folder: Path) -> None:
    """A token for this process and all clusters that it starts; before Ray is imported."""
    path = folder / "token"
    path.write_text(secrets.token_hex(32), encoding="utf-8")
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5"}


@contextmanager
def ray_cluster(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Two CPUs behind ``ray://127.0.0.1:port``; the process whose end is the cluster's."""
    said = folder / f"ray{time.monotonic_ns()}"
    words = [sys.executable, __file__, str(port)]
    with said.open("wb") as log:
        head = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + LONGEST
        while STARTED not in said.read_text(encoding="utf-8"):
            assert head.poll() is None, said.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, said.read_text(encoding="utf-8")
            time.sleep(0.1)
        yield head
    finally:
        with suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGTERM)
        try:
            head.wait(LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)
            head.wait(LONGEST)


def main() -> None:
    """Be the cluster."""
    import ray
    from ray.util.client.server.server import serve

    options = {"_node_ip_address": "127.0.0.1", "object_store_memory": 100 * MEGABYTE}
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, **options)
    port = serve("127.0.0.1", int(sys.argv[1]))
    print(STARTED, port, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
