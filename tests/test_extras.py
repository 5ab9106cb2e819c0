"""What ``pip install gal-learn`` brings works without any extra; what needs one says so in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from doc_examples import examples
from gal.cli.app import COMMANDS
from gal.extras import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
BLOCKED = tuple(module.split(".")[0] for packages in EXTRAS.values() for module in packages)
BASE = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())

"""
NEED_NODES = {
    "demo": [],
    "init": ["lab", "--data", "rows.csv"],
    "cards": ["list"],
    "doctor": [],
    "serve": [],
    "status": [],
    "invite": ["task", "lab"],
    "join": ["task.invitation"],
    "learn": ["task"],
    "predict": ["task", "rows.csv"],
    "versions": ["task"],
    "forget": ["task", "--yes"],
    "audit": [],
    "backup": ["node.backup"],
    "privacy": [],
}


def without_extras(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a program says in a folder where no extra is installed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-c", BASE + code], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_table_of_extras_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = {
        extra: sorted(one.split(">")[0] for one in packages if "== 'darwin'" not in one)
        for extra, packages in project["optional-dependencies"].items()
        if extra in EXTRAS
    }
    assert listed == {extra: sorted(packages.values()) for extra, packages in EXTRAS.items()}
    everything = next(iter(project["optional-dependencies"]["all"]))
    assert all(extra in everything for extra in (*EXTRAS, "bench"))
    needed = " ".join(project["dependencies"])
    assert not [package for packages in EXTRAS.values() for package in packages.values() if package in needed]


def test_the_readme_runs_without_extras(tmp_path: Path) -> None:
    found = examples((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) >= 2
    done = without_extras("".join(one.code for one in found), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(one.output for one in found)


def test_gal_simulate_needs_no_extra(tmp_path: Path) -> None:
    rows = "\n".join(f"{row % 7},{row % 5},{row % 7 + 2 * (row % 5)}" for row in range(70))
    (tmp_path / "rows.csv").write_text(f"a,b,y\n{rows}\n")
    (tmp_path / "parts.toml").write_text('[organizations]\nclinic = ["a"]\nlab = ["b"]\n')
    words = ["--target", "y", "--organizations", "parts.toml", "--folds", "1", "--rounds", "2"]
    (tmp_path / "rows.parquet").write_bytes(b"")
    code = "from gal.cli import main\n"
    for table, status in (("rows.csv", 0), ("rows.parquet", 4)):
        code += f"""
sys.argv = {["gal", "simulate", table, *words]!r}
try:
    main()
    found = 0
except SystemExit as end:
    found = end.code or 0
assert found == {status}, ({table!r}, found)
"""
    done = without_extras(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "reading Parquet files needs the package 'pyarrow': pip install 'gal-learn[node]'." in done.stderr


def test_commands_of_nodes_say_what_to_install(tmp_path: Path) -> None:
    evaluating = {"simulate", "leakage", "bench"}
    assert set(NEED_NODES) | evaluating == set(COMMANDS)
    tried = "\n".join(
        f"""
sys.argv = {["gal", name, *words]!r}
try:
    main()
except SystemExit as end:
    assert end.code == 4, ({name!r}, end.code)
else:
    raise AssertionError({name!r})
"""
        for name, words in NEED_NODES.items()
    )
    done = without_extras(f"from gal.cli import main\n{tried}", tmp_path)
    sentences = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 0, done.stderr
    assert len(sentences) == len(NEED_NODES)
    assert all(
        one.endswith("needs the package 'grpcio': pip install 'gal-learn[node]'.") for one in sentences
    )
    assert not list(tmp_path.iterdir())
