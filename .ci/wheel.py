"""Build the wheel, install it into an empty environment, and see that it does what the README promises of it.

Only what a user has: the wheel, pip and Python. No extras, no sources, no tests. ``make wheel`` runs this.
With ``UV`` a path of uv, that takes pip's place, in a tenth of the time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(
    r"<!-- example: runs as a test -->\n```python\n(.*?)```\n<!-- output -->\n```\n(.*?)```", re.DOTALL
)
WANTED = (
    "gal/py.typed",
    "gal_bench/py.typed",
    "gal_bench/rows/uci/table.toml",
    "gal_bench/kept.jsonl",
    *(f"gal/node/runtime/web/static/page.{kind}" for kind in ("html", "css", "js")),
)
PARTS = '[organizations]\nclinic = ["age", "sex", "bp"]\nlab = ["s1", "s2", "s5"]\n'
KEEPING = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""What is imported is compiled once, and kept for the next process."""
UV = os.environ.get("UV", "")
TABLE = """
from sklearn.datasets import load_diabetes
load_diabetes(as_frame=True).frame.to_csv("t.csv", index=False)
"""


def main() -> None:
    """Build, look inside, install, try."""
    with tempfile.TemporaryDirectory(prefix="gal-wheel-") as name:
        folder = Path(name)
        wheel = build(folder)
        inside = zipfile.ZipFile(wheel).namelist()
        lacking = [file for file in WANTED if file not in inside]
        check(not lacking, f"the wheel lacks {', '.join(lacking)}")
        python = install(wheel, folder / "environment")
        for code, expected in examples():
            found = said(python, folder, "-c", code)
            check(found == expected, f"the README's example printed\n{found}\ninstead of\n{expected}")
        commands(python, folder)
        target = ROOT / "dist"
        target.mkdir(exist_ok=True)
        shutil.copy(wheel, target)
        print(f"{wheel.name} does what the README says; it is in dist/")


def build(folder: Path) -> Path:
    """The wheel, from the sources here."""
    if UV:
        run(UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
        return next(folder.glob("*.whl"))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


def install(wheel: Path, environment: Path) -> Path:
    """The python of an environment that has the wheel and what it needs, and nothing else."""
    python, constraints = environment / "bin" / "python", ROOT / "constraints.txt"
    if UV:
        run(UV, "venv", "--quiet", "--python", sys.executable, environment)
        run(UV, "pip", "install", "--quiet", "--python", python, "-c", constraints, wheel)
        return python
    venv.create(environment, with_pip=True)
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",  # most of it is never imported here
        "-c",
        constraints,
        wheel,
    )
    return python


def examples() -> list[tuple[str, str]]:
    """The README's examples; each goes on where the one before ended."""
    found, before = [], ""
    for code, output in EXAMPLE.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        quiet = (
            f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n    exec({before!r})\n"
        )
        found.append((quiet + code if before else code, output))
        before += code
    check(len(found) >= 2, "the README has no examples any more, or they look different")
    return found


def commands(python: Path, folder: Path) -> None:
    """The command line: help, a simulation, and one sentence about what is not installed."""
    gal = python.parent / "gal"
    run(gal, "--help", where=folder, quiet=True)
    run(python, "-c", TABLE, where=folder)
    (folder / "parts.toml").write_text(PARTS, encoding="utf-8")
    run(
        gal,
        "simulate",
        "t.csv",
        "--target",
        "target",
        "--organizations",
        "parts.toml",
        where=folder,
        quiet=True,
    )
    refused = subprocess.run(
        [gal, "serve"], cwd=folder, capture_output=True, text=True, check=False, env=KEEPING
    )
    check(
        refused.returncode == 4 and "pip install 'gal-learn[node]'" in refused.stderr,
        f"gal serve without the extra node said: {refused.stderr}",
    )


def run(*words: object, where: Path = ROOT, quiet: bool = False) -> None:
    """A command that must succeed."""
    done = subprocess.run(
        [str(word) for word in words], cwd=where, capture_output=quiet, text=True, check=False, env=KEEPING
    )
    check(done.returncode == 0, f"{' '.join(map(str, words))} failed\n{done.stderr or ''}")


def said(python: Path, folder: Path, *words: str) -> str:
    """What Python printed, which must succeed."""
    done = subprocess.run(
        [python, *words], cwd=folder, capture_output=True, text=True, check=False, env=KEEPING
    )
    check(done.returncode == 0, f"it failed with\n{done.stderr}")
    return done.stdout


def check(true: bool, otherwise: str) -> None:
    """End with a sentence where something is not as it should be."""
    if not true:
        sys.exit(f"error: {otherwise}")


if __name__ == "__main__":
    main()
