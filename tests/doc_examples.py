"""Finds the examples in README and docs, runs them, and can write their real output back.

python tests/doc_examples.py          # write outputs and generated parts
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from gal.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(
    r"<!-- example: runs as a test -->\n```python\n(?P<code>.*?)```\n(?:<!-- output -->\n```\n(?P<output>.*?)```\n)?",
    re.DOTALL,
)
GENERATED = re.compile(
    r"(<!-- generated: gal ?(?P<command>\w*) --help -->\n```\n)(?P<text>.*?)(```\n)", re.DOTALL
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
    """The help of a command, without colours and in a fixed width."""
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    result = runner.invoke(app, [*([command] if command else []), "--help"], prog_name="gal")
    return "\n".join(line.rstrip() for line in result.output.splitlines()).strip("\n") + "\n"


DEMO = re.compile(r"(<!-- demo: [^>]*-->\n```\n)(?P<text>.*?)(```\n)", re.DOTALL)


def demo_text() -> str:
    """What ``gal demo`` prints, without its last paragraph, which has the seconds."""
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    lines = [line.rstrip() for line in runner.invoke(app, ["demo"]).stdout.splitlines()]
    return (
        "\n".join(lines[: next(i for i, line in enumerate(lines) if "rows were predicted by" in line)]) + "\n"
    )


def main() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        names: dict[str, Any] = {}
        shift = 0
        for example in examples(text):
            printed = run(example, names)
            if example.span is not None:
                start, end = example.span[0] + shift, example.span[1] + shift
                text = text[:start] + printed + text[end:]
                shift += len(printed) - (end - start)
        text = GENERATED.sub(lambda found: found[1] + help_text(found["command"]) + found[4], text)
        text = DEMO.sub(lambda found: found[1] + demo_text() + found[3], text)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
