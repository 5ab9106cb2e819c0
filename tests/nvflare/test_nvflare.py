"""NVFlare's own server and sites as processes on loopback: what is learned, who is missed, what is refused.

``make test-nvflare`` runs it.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from patience import LONGEST, patient, until
from real_nodes import HOLDER, TASK, Network, text_of

if not os.environ.get("GAL_NVFLARE"):
    pytest.skip("NVFlare is started by make test-nvflare only", allow_module_level=True)

from flare import Flare
from gal.node.runtime.nvflare.settings import prepare_site, write_job

SITES = ("lab", "hospital", "insurer")
# What NVFlare's administrator warns of in this process is not ours to repair.
pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore")]


def give_rows(network: Network) -> None:
    """Rows to predict: those of the label holder."""
    folder = network.home(HOLDER) / "rows"
    folder.mkdir()
    shutil.copy(network.root / f"{HOLDER}.csv", folder / "all.csv")


def predicted(network: Network) -> list[dict[str, str]]:
    with (network.home(HOLDER) / "predictions" / "all.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check_same(network: Network) -> None:
    """Ensemble and predictions are those of one process, bit for bit; everything is on record."""
    expected, output = network.expected()
    assert text_of(network.ensemble()) == text_of(expected)
    rows = predicted(network)
    assert [float(row["prediction"]) for row in rows] == output.tolist()
    assert {row["degraded"] for row in rows} == {"0"}
    network.check_audits()


def simulate(workspace: Path, job: Path, sites: Sequence[str]) -> str:
    """Run a job in NVFlare's simulator; what it said."""
    code = "import sys; from nvflare.cli import main; sys.argv[0] = 'nvflare'; main()"
    words = ["simulator", str(job), "-w", str(workspace), "-c", ",".join(sites), "-t", str(len(sites))]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=job.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HOME": str(job.parent)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_simulator_learns_and_predicts_the_same_bit_for_bit(tmp_path: Path) -> None:
    with Network(tmp_path / "homes", organizations=SITES) as network:
        give_rows(network)
        local = tmp_path / "workspace" / "local"
        local.mkdir(parents=True)
        prepare_site(local, label_holder=HOLDER, home=network.root / "{site}")
        learning = simulate(local.parent, write_job(tmp_path / "learn", TASK, SITES), SITES)
        assert f"learned {TASK}" in learning, learning[-3000:]
        assert '"what": "to connect", "organizations": ["hospital", "insurer", "lab"]' in learning
        predicting = simulate(
            local.parent, write_job(tmp_path / "predict", TASK, SITES, predict="all.csv"), SITES
        )
        assert f"predicted {TASK}" in predicting, predicting[-3000:]
        check_same(network)


def prepared(network: Network, flare: Flare) -> None:
    give_rows(network)
    for name in SITES:
        prepare_site(flare.local(name), label_holder=HOLDER, home=network.home(name))
    prepare_site(flare.local("server"), label_holder=HOLDER, home=network.home(HOLDER))


def test_poc_learns_the_same_and_refuses_a_job_that_brings_code(tmp_path: Path) -> None:
    with (
        Network(tmp_path / "homes", organizations=SITES) as network,
        Flare(tmp_path / "flare", SITES) as flare,
    ):
        prepared(network, flare)
        flare.start("server", *SITES)
        with flare.session() as session:
            assert flare.listening() <= {"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"}
            learning = session.submit_job(str(write_job(tmp_path / "learn", TASK, SITES)))
            assert flare.ended(session, learning) == "FINISHED:COMPLETED", flare.said("server")[-3000:]
            job = write_job(tmp_path / "predict", TASK, SITES, predict="all.csv")
            predicting = session.submit_job(str(job))
            assert flare.ended(session, predicting) == "FINISHED:COMPLETED", flare.said("server")[-3000:]
            check_same(network)

            job = write_job(tmp_path / "code", TASK, SITES)
            (job / "organization" / "custom").mkdir()
            mark = tmp_path / "ran"
            (job / "organization" / "custom" / "brought.py").write_text(f"open({str(mark)!r}, 'w')\n")
            bringing = session.submit_job(str(job))
            assert flare.ended(session, bringing) != "FINISHED:COMPLETED"
            refused = json.dumps(session.get_job_meta(bringing)["job_deploy_detail"])
            assert all(f"{name}: NVFLARE_ERROR: BYOC not permitted" in refused for name in SITES)

            job = write_job(tmp_path / "unlisted", TASK, SITES)
            path = job / "organization" / "config" / "config_fed_client.json"
            path.write_text(path.read_text().replace("gal.node.runtime.nvflare.executor.Organ", "gal.Organ"))
            unlisted = session.submit_job(str(job))
            assert flare.ended(session, unlisted) != "FINISHED:COMPLETED"
            assert "is not in allow_list" in flare.said("lab")
            assert not mark.exists()


def test_a_killed_site_is_a_missed_round_and_back_in_the_next_job(tmp_path: Path) -> None:
    options = {"cross_validation": 0, "validation_fraction": 0.0}
    network = Network(tmp_path / "homes", organizations=SITES, paced=["insurer"], rounds=3, options=options)
    with network, Flare(tmp_path / "flare", SITES, path=network.root) as flare:
        prepared(network, flare)
        network.allow("insurer", 1)
        flare.start("server", *SITES)
        with flare.session() as session:
            job = write_job(tmp_path / "learn", TASK, SITES, deadline=patient(20.0))
            learning = session.submit_job(str(job))
            until(lambda: network.answered("lab") == [1, 2], "the others to have answered round 2")
            flare.kill("insurer")
            assert flare.ended(session, learning) == "FINISHED:COMPLETED", flare.said("server")[-3000:]
            missed = [sorted(one.left_out) for one in network.ensemble().rounds]
            assert missed == [[], ["insurer"], ["insurer"]]
            network.allow("insurer")
            flare.start("insurer")
            # The server still counts it among those who are there: what it says itself is waited for.
            registered = "Successfully registered"
            until(lambda: flare.said("insurer").count(registered) == 2, "the killed site to be back")
            job = write_job(tmp_path / "predict", TASK, SITES, predict="all.csv")
            predicting = session.submit_job(str(job))
            assert flare.ended(session, predicting) == "FINISHED:COMPLETED", flare.said("server")[-3000:]
            assert {row["degraded"] for row in predicted(network)} == {"0"}
