"""What of a deep table was run, on what, and how to run the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gal_bench.cells import Outcome
from gal_bench.deep_sets import ON_REQUEST
from gal_bench.runner import Run

PAGE = "docs/how-to-bench.md"


def provenance_of(run: Run) -> str:
    """A paragraph in Markdown; empty for a table that is not deep."""
    if not run.table.deep:
        return ""
    cells = {repr(cell) for row in run.table.rows for cell in run.table.cells(row)}
    done = [run.outcomes[key] for key in sorted(cells) if key in run.outcomes]
    if len(done) == len(cells):
        return f"All {len(cells)} runs were done{_on(done)}.{_by(done)}"
    said = f"{len(done)} of {len(cells)} runs were done{_on(done)}" if done else "Nothing here was run yet"
    rest = "the rest" if done else "it"
    said += (
        f": `gal bench {run.table.name} --deep` runs {rest} here, `gal bench {run.table.name} --plan "
        "plan.json` "
        f"writes {rest} down for another machine ({PAGE})."
    )
    said += _by(done)
    blank = _on_request_and_blank(run)
    if blank:
        said += f" Given out on request only, so run only where `--dataset` names them: {', '.join(blank)}."
    return said


def _on(outcomes: Sequence[Outcome]) -> str:
    """Devices, the most used first."""
    devices = Counter(one.device for one in outcomes if one.device).most_common()
    if len(devices) == 1:
        return f" on {devices[0][0]}"
    return f" on {' and '.join(f'{name} ({count})' for name, count in devices)}" if devices else ""


def _by(outcomes: Sequence[Outcome]) -> str:
    """Commits of runs that were kept when sources changed; empty where there are none."""
    commits = Counter(one.commit for one in outcomes if one.commit).most_common()
    counts = ", ".join(f"{name} ({count})" for name, count in commits)
    return f" Kept from the sources of earlier commits: {counts}." if commits else ""


def _on_request_and_blank(run: Run) -> list[str]:
    places = {(row.name, *place) for row in run.table.rows for place in run.table.places(row)}
    rows = {row.name: row for row in run.table.rows}
    done = {place[1] for place in places if run.at(rows[place[0]], *place[1:])}
    return [name for name in run.table.sets if name in ON_REQUEST and name not in done]
