"""A node that is asked for nothing holds little: no process that computes, nothing imported that computes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

from patience import LONGEST
from small_network import LABEL, ROW_ID, Network

SOURCES = Path(__file__).resolve().parents[3] / "src"

COMPUTING = ("scipy", "sklearn", "pandas", "duckdb", "joblib", "skops", "torch", "xgboost", "dask")

LINKED = f"""
import sys
from contextlib import ExitStack
from pathlib import Path
import gal.cli.nodes
from gal.node.store.logs import open_log
from gal.node.runtime.control import serving

root = Path(sys.argv[1])
with ExitStack() as stack:
    holder, lab = (
        stack.enter_context(serving(root / name, open_log(root / name, "error")))[0]
        for name in ("clinic", "lab")
    )
    task = holder.state.tasks("label holder")[0].id
    assert holder.assistants.wait_for(lambda: "lab" in holder.assistants.present(task), {LONGEST})
    assert [node.worker.pid for node in (holder, lab)] == [None, None]
    found = {{name.split(".")[0] for name in sys.modules}} & set({COMPUTING})
    assert not found, found
    print("linked")
"""


def test_label_holder_and_organization_that_have_linked_import_nothing_that_computes(tmp_path: Path) -> None:
    rows = pd.DataFrame({ROW_ID: [1, 2, 3], "a": [0.5, 1.5, 2.5]})
    net = Network(tmp_path, {"clinic": rows.assign(**{LABEL: [1.0, 2.0, 3.0]}), "lab": rows})
    net.start()
    net.invite("outcome")
    net.stop()
    done = subprocess.run(
        [sys.executable, "-c", LINKED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(SOURCES)},
    )
    assert (done.stdout, done.returncode) == ("linked\n", 0), done.stderr
