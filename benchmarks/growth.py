"""How learning grows with rows, organizations, outputs and rounds: CPU time and memory, as exponents. A
report; nothing passes or fails.

    python benchmarks/growth.py                    # up to a million rows: a few minutes on two cores
    python benchmarks/growth.py rows --most 10000000

In one process, each point in an interpreter of its own: 4 organizations of 5 columns, 50,000 rows, 10 rounds,
two outputs, linear local models, unless it is that which grows. No closing model, no crossed residuals and no
cross-validation: what is measured is the rounds. An exponent is the slope from the second point to the last,
in logarithms: 1 is in proportion. ``idle`` starts two nodes as processes and looks at what they hold when
they have linked and nothing is asked of them.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gal import Organization, learn
from gal.models.registry import make_model


@dataclass(frozen=True)
class Point:
    """What is learned."""

    rows: int = 50_000
    organizations: int = 4
    outputs: int = 2
    rounds: int = 10
    columns: int = 5
    model: str = "linear"


@dataclass(frozen=True)
class Measured:
    """What it took."""

    cpu_seconds: float
    """Of learning, without making the data."""
    megabytes: float
    """Most that the process held, views included."""


def measure(point: Point) -> Measured:
    """Learn it in this process."""
    rng = np.random.default_rng(0)
    signal = rng.standard_normal(point.rows)
    members = [
        Organization(
            f"organization {number}",
            signal[:, None] + rng.standard_normal((point.rows, point.columns)) * 3,
            make_model("any", point.model, {}),
        )
        for number in range(point.organizations)
    ]
    labels: Any = signal
    if point.outputs > 1:
        cuts = np.quantile(signal, np.linspace(0, 1, point.outputs + 1)[1:-1])
        labels = np.searchsorted(cuts, signal).astype(str)
    options: Any = {"closing": False, "cross_validation": 0, "patience": None}
    options["min_rate"] = None  # all rounds, also where two organizations have soon learned all there is
    before = time.process_time()
    learn(labels, members, rounds=point.rounds, **options)
    seconds = time.process_time() - before
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return Measured(seconds, most)


def in_a_process(point: Point) -> Measured:
    """The same in an interpreter of its own, so that memory is of this point alone."""
    command = [sys.executable, __file__, "point", "--point", json.dumps(asdict(point))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured(**json.loads(done.stdout))


def grow(name: str, values: Sequence[int], start: Point) -> str:
    """One table, and its exponents."""
    points = [Point(**asdict(start) | {name: value}) for value in values]
    found = [in_a_process(point) for point in points]
    lines = [f"| {name} | CPU s | MB | CPU s a round and organization |", "|---:|---:|---:|---:|"]
    for value, point, one in zip(values, points, found, strict=True):
        each = one.cpu_seconds / point.rounds / point.organizations
        lines.append(f"| {value:,} | {one.cpu_seconds:.2f} | {one.megabytes:,.0f} | {each:.4f} |")
    taken = [one.cpu_seconds for one in found], [one.megabytes for one in found]
    slopes = [_exponent(values, each) for each in taken]
    said = [f"{start.model}: CPU time grows with exponent {slopes[0]:.2f}, memory with {slopes[1]:.2f}"]
    said.append(f"the last takes {found[-1].cpu_seconds / found[0].cpu_seconds:.1f} x the first")
    return "\n".join([*lines, "", "; ".join(said) + "."])


def _exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    if len(sizes) < 2:
        return math.nan
    first = 1 if len(sizes) > 2 else 0  # what is the same at any size weighs most at the first
    return math.log(values[-1] / values[first]) / math.log(sizes[-1] / sizes[first])


def idle() -> str:
    """What ``gal serve`` holds, a label holder's and an organization's, when they have linked and wait."""
    from gal.node.admin.init import init_node
    from gal.node.admin.membership import invite, join, read_terms
    from gal.transport import CardFolder, card_of
    from node_parts.memory import held, with_children
    from node_parts.network import free_port, serving

    with tempfile.TemporaryDirectory(prefix="gal-growth-") as folder:
        root, lines = Path(folder), [f"{row},{row}\n" for row in range(100)]
        (root / "rows.csv").write_text("id,x\n" + "".join(lines))
        own: Any = {"label": "x", "bind": f"127.0.0.1:{free_port()}"}
        source = str(root / "rows.csv")
        clinic = init_node(root / "clinic", "clinic", source=source, row_id="id", **own)
        lab = init_node(root / "lab", "lab", source=source, row_id="id")
        CardFolder(root / "lab" / "cards").add(card_of(clinic, own["bind"]))
        CardFolder(root / "clinic" / "cards").add(card_of(lab))
        invite(root / "clinic", "outcome", ["lab"], root / "task", options={})
        join(root / "lab", *read_terms(root / "lab", root / "task"))
        with serving(root / "clinic") as holder, serving(root / "lab") as organization:
            _until(lambda: b'"linked"' in (root / "lab" / "log").read_bytes())
            time.sleep(3)
            found = {
                name: [(held([pid]), held([pid], "Rss:")) for pid in with_children(process.pid)]
                for name, process in (("label holder", holder), ("organization", organization))
            }
    each = "; ".join(
        f"{name} {sum(own for own, _ in sizes) / 1e6:.0f} MB ({sum(all for _, all in sizes) / 1e6:.0f} with "
        f"all that it shares) in {len(sizes)} process{'es' * (len(sizes) > 1)}"
        for name, sizes in found.items()
    )
    return f"Linked and idle, proportional set size: {each}."


def _until(ready: Callable[[], bool], seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > ends:
            raise SystemExit(f"a node did not link within {seconds:g} seconds")
        time.sleep(0.1)


def parts(most: int) -> dict[str, Callable[[], str]]:
    """By name: what grows."""
    rows = [size for size in (10**4, 10**5, 10**6, 10**7) if size <= most]
    few = Point(rows=min(50_000, most))
    return {
        "rows": lambda: "\n\n".join(
            grow("rows", rows, Point(model=model, rounds=5, outputs=1)) for model in ("linear", "tabular")
        ),
        "organizations": lambda: grow("organizations", (2, 4, 8, 16, 32, 64), replace(few, outputs=1)),
        "outputs": lambda: grow("outputs", (2, 10, 30, 100), few),
        "rounds": lambda: grow("rounds", (5, 10, 30, 100), few),
        "idle": idle,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", help=f"some of {', '.join(parts(0))}; all by default")
    parser.add_argument("--most", type=int, default=10**6, help="rows")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.point is not None:
        print(json.dumps(asdict(measure(Point(**json.loads(chosen.point))))))
        return
    if unknown := set(chosen.part) - set(parts(0)):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose from {', '.join(parts(0))}")
    for name in chosen.part or parts(0):
        print(f"## {name}\n\n{parts(chosen.most)[name]()}\n", flush=True)


if __name__ == "__main__":
    main()
