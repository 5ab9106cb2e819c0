"""``gal bench peers``: GAL against what people would use instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.markup import escape

from gal.cli.screen import Screen
from gal.errors import InvalidInputError
from gal_bench.peers.comparing import compare_peers
from gal_bench.peers.peers_page import peers_page
from gal_bench.peers.tables import SETS

PEERS = "peers"
"""The name of this comparison among the tables; "all" tables are without it: it takes long."""


def bench_peers(
    sets: Sequence[str], seeds: range, results: Path, data_dir: Path | None, *, as_json: bool
) -> None:
    """Run what is missing, write ``peers.csv`` and ``results-peers.md``, and print the page."""
    unknown = [name for name in sets if name not in SETS]
    if unknown:
        raise InvalidInputError(f"peers are compared on {', '.join(SETS)}, not on {', '.join(unknown)}")
    out = Screen(stderr=True)
    out.quiet = as_json
    with out.status("starting") as status:
        found, skipped = compare_peers(
            sets or SETS,
            results,
            data_dir,
            seeds=seeds,
            say=lambda what: status.update(escape(what)),
        )
    page = peers_page(found, skipped)
    (results / "results-peers.md").write_text(page, encoding="utf-8")
    if as_json:
        typer.echo(json.dumps({"results": [asdict(one) for one in found], "skipped": skipped}, indent=2))
        return
    typer.echo(page)
