"""The demo as an HTML page: what it brought, what left each organization, and what that reveals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gal_bench.demo.four_nodes import DemoFacts


def write_demo_report(found: DemoFacts, learned: Mapping[str, Any], home: Path, path: Path) -> None:
    """Write the report of the version that was learned; its answer is about the new patients."""
    from gal.cli.learning import report_of_version
    from gal.evaluate.reporting.facts import PRIVACY
    from gal.evaluate.reporting.writing import write_report

    facts = report_of_version(home, learned)
    low, high = found.gain
    page = replace(
        facts,
        title=f"The demo: did assistance help the {facts.holder}?",
        question=f"The demo: did assistance help the {facts.holder} to predict {learned['task']}?",
        answer=(
            f"{'Yes' if low > 0 else 'No clear difference'}: with assistance, R² on {found.predicted_rows} "
            f"new patients is {found.assisted:.3f} instead of {found.alone:.3f}, a gain of "
            f"{found.assisted - found.alone:.3f} (95 % confidence: {low:.3f} to {high:.3f})."
        ),
        verdict="helps" if low > 0 else "hurts" if high < 0 else "unclear",
        more=[
            f"A pooled model ({found.pooled_model}) reaches {found.pooled:.3f}.",
            f"In cross-validation: {facts.answer}",
            *facts.more,
        ],
        sections={**facts.sections, PRIVACY: [learned["privacy"]["words"], *reveals(found)]},
        plain=found.to_json() | {"learned": dict(learned)},
    )
    write_report(page, path)


def reveals(found: DemoFacts) -> list[str]:
    """What plain residuals and fitted values reveal, as attacks measured it."""
    from gal_bench.demo.four_nodes import HOLDER

    said = found.revealed
    return [
        f"Residuals: a partner that knows two labels can work out {_of(said.labels, said.of_labels)} labels.",
        f"Fitted values: the {HOLDER} can work out {_of(said.columns, said.of_columns)} columns of its "
        "partners.",
        f"It must know {said.known_rows} patients for that. How to limit this: README.md, 'Privacy'.",
    ]


def _of(found: int, of: int) -> str:
    return f"all {of}" if found == of else f"{found} of {of}"
