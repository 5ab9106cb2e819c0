"""Examples of README and docs: runs them, and writes their output and the generated parts back.

python tests/doc_examples.py generated    # only help texts and the catalog of errors
python tests/doc_examples.py              # outputs of examples, too
python tests/doc_examples.py nodes        # the demo's output and the tutorial, too: minutes
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
import textwrap
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parent / "support"))  # as pytest has it

from typer.testing import CliRunner

from gal import errors
from gal.cli.app import app
from ports import free_port
from terminals import replayed

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(
    r"<!-- example: runs as a test -->\n```python\n(?P<code>.*?)```\n(?:<!-- output "
    r"-->\n```\n(?P<output>.*?)```\n)?",
    re.DOTALL,
)
GENERATED = re.compile(
    r"(<!-- generated: gal(?P<command>(?: [\w-]+)*) --help -->\n```\n)(?P<text>.*?)(```\n)", re.DOTALL
)


class Example(NamedTuple):
    """One python block, what the page says it prints, and where that stands."""

    code: str
    output: str
    span: tuple[int, int] | None


def examples(text: str) -> list[Example]:
    """All examples of a page, in order."""
    return [
        Example(
            found["code"],
            found["output"] or "",
            found.span("output") if found["output"] is not None else None,
        )
        for found in EXAMPLE.finditer(text)
    ]


def run(example: Example, names: dict[str, Any]) -> str:
    """What the example prints; examples of a page share their names."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(example.code, "<example>", "exec"), names)
    return out.getvalue()


def help_text(command: str) -> str:
    """The help of a command such as "cards add", without colours and in a fixed width."""
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    result = runner.invoke(app, [*command.split(), "--help"], prog_name="gal")
    return "\n".join(line.rstrip() for line in result.output.splitlines()).strip("\n") + "\n"


ERRORS = re.compile(r"(<!-- generated: errors -->\n)(?P<text>.*?)(\n<!-- end of errors -->)", re.DOTALL)


def errors_text() -> str:
    """The catalog of errors: a row for each class of ``gal.errors``, in its order."""
    rows = ["| error | kind of | exit code | cause | remedy |", "|---|---|---:|---|---|"]
    for name, one in vars(errors).items():
        if isinstance(one, type) and issubclass(one, errors.GALError):
            kinds = ", ".join(f"`{base.__name__}`" for base in one.__bases__)
            cause = " ".join((one.__doc__ or "").split()).replace("``", "`")
            rows.append(f"| `{name}` | {kinds} | {one.exit_code} | {cause} | {one.remedy} |")
    return "\n".join(rows)


DEMO_PAGE = ROOT / "docs/tutorials/demo.md"
DEMO = re.compile(r"(<!-- demo: [^>]*-->\n```\n)(?P<text>.*?)(```\n)", re.DOTALL)
DEMO_SHORT = re.compile(r"(<!-- demo, in short: [^>]*-->\n```\n)(?P<text>.*?)(```\n)", re.DOTALL)
TEN_LINES = {
    "What it brought": 5,
    "What this reveals": 4,
    "  Model and predictions": 1,
}
"""How the parts of the demo's output begin that README has, and how many lines they are."""


def shortened(page: str) -> str:
    """The demo in ten lines."""
    found = DEMO.search(page)
    lines = found["text"].splitlines() if found is not None else []
    kept: list[str] = []
    for start, count in TEN_LINES.items():
        first = next((i for i, line in enumerate(lines) if line.startswith(start)), len(lines))
        kept += lines[first : first + count]
    return "".join(f"{line}\n" for line in kept)


def demo_text() -> str:
    """What ``gal demo`` prints, in a folder that is called /home/you here."""
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        result = runner.invoke(app, ["demo"])
        assert result.exit_code == 0, f"{result.exception}\n{result.output}"
        printed = result.output.replace(str(Path.cwd()), "/home/you")
    return "\n".join(textwrap.fill(line, 100) for line in printed.splitlines()) + "\n"


TUTORIAL = ROOT / "docs/tutorials/nodes.md"


def tutorial_text(folder: Path) -> str:
    """The tutorial of the nodes with what its commands print, run in this folder on a free port."""
    return replayed(TUTORIAL.read_text(encoding="utf-8"), folder, free_port())


def write_nodes() -> None:
    """Write what the demo and the tutorial print into their pages."""
    text = DEMO.sub(lambda found: found[1] + demo_text() + found[3], DEMO_PAGE.read_text(encoding="utf-8"))
    DEMO_PAGE.write_text(text, encoding="utf-8")
    readme = ROOT / "README.md"
    said = readme.read_text(encoding="utf-8")
    readme.write_text(
        DEMO_SHORT.sub(lambda found: found[1] + shortened(text) + found[3], said), encoding="utf-8"
    )
    with tempfile.TemporaryDirectory() as folder:
        TUTORIAL.write_text(tutorial_text(Path(folder).resolve()), encoding="utf-8")


def notebook_examples(notebook: dict[str, Any]) -> list[Example]:
    """The code cells of a notebook, in order, with what they are said to print."""
    return [
        Example("".join(cell["source"]), "".join("".join(one["text"]) for one in cell["outputs"]), None)
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def write_notebook(path: Path) -> None:
    """Run a notebook's cells and write what they print into it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    printed = [run(example, names) for example in notebook_examples(notebook)]
    cells = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for cell, text in zip(cells, printed, strict=True):
        stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
        cell["outputs"] = [stream] if text else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    only_generated = "generated" in sys.argv[1:]
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        names: dict[str, Any] = {}
        shift = 0
        for example in [] if only_generated else examples(text):
            printed = run(example, names)
            if example.span is not None:
                start, end = example.span[0] + shift, example.span[1] + shift
                text = text[:start] + printed + text[end:]
                shift += len(printed) - (end - start)
        text = GENERATED.sub(lambda found: found[1] + help_text(found["command"]) + found[4], text)
        text = ERRORS.sub(lambda found: found[1] + errors_text() + found[3], text)
        page.write_text(text, encoding="utf-8")
    for notebook in [] if only_generated else NOTEBOOKS:
        write_notebook(notebook)
    if "nodes" in sys.argv[1:]:
        write_nodes()


if __name__ == "__main__":
    main()
