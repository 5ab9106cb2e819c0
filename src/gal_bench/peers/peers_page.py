"""``results-peers.md``: one table per data set and split, and how far each peer goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gal_bench.peers.comparing import PeerResult

HEAD = """# Against what people would use instead

`gal bench peers` writes this page. All peers learn from the same rows and are judged on the same other rows.
*Alone* has the label holder's columns, *pooled* all columns in one place; *GAL*, *XGBoost vertical* (its own
federated mode, columns split, plain text), *FedTree vertical* (plain text, all parties in one process, so
that its bytes are not counted) and *SplitNN* (one hidden layer on each side of the cut) have them divided.
Boosting stops early on a tenth of the rows; of FedTree these choose among 20 to 100 trees. *Of the way* is
the share of the way from the better model alone to the best pooled one, by score and by log loss. *GAL* was
measured with [interaction probes](explanation-algorithm.md#interaction-probes), off by default since
November 2026, because they [reveal columns](explanation-privacy.md#interaction-probes). *GAL, not crossed* is
without them, as by default: its CPU time is to be compared with that of pooled boosting, and the difference
is what probes cost. CPU time is of one core and of all processes that a peer starts; bytes are between
organizations, while learning. Lines are those of the peer's function, and of those that it calls, in
`src/gal_bench/peers`; reading and encoding the table is not among them.
"""

COLUMNS = ("", "score", "log loss", "of the way", "by log loss", "seconds", "CPU s", "MB", "lines")
BETTER = "better than GAL by"
"""A column more where there are several seeds: the mean difference in score, and its standard error."""
GAL = "GAL"


def peers_page(results: Sequence[PeerResult], skipped: Mapping[str, str]) -> str:
    """The page of these results."""
    parts = [HEAD]
    for place in dict.fromkeys((one.set, one.split) for one in results):
        of = [one for one in results if (one.set, one.split) == place]
        parts.append(_table(*place, of))
    if skipped:
        parts.append("## Not run\n\n" + "\n".join(f"- {name}: {why}" for name, why in skipped.items()) + "\n")
    return "\n".join(parts)


def _table(name: str, split: str, results: Sequence[PeerResult]) -> str:
    score = "AUC" if results[0].auc is not None else "accuracy"
    seeds = len({one.seed for one in results})
    columns = (*COLUMNS, BETTER) if seeds > 1 else COLUMNS
    lines = [
        f"## {name}, {split}",
        "",
        f"The score is {score}" + (f", the mean of {seeds} seeds{_same_rows(name)}." if seeds > 1 else "."),
        "",
        "| " + " | ".join(columns) + " |",
        "|---|" + "---:|" * (len(columns) - 1),
    ]
    means = {peer: _means([one for one in results if one.peer == peer]) for peer in _names(results)}
    for peer, (reached, lost, *costs) in means.items():
        ways = [share_of_way(peer, means, place) for place in (0, 1)]
        seconds, cpu, moved, count = costs
        cells = [
            peer,
            f"{reached:.4f}",
            f"{lost:.4f}",
            *("" if way is None else f"{way:.1%}" for way in ways),
        ]
        cells += [f"{seconds:.1f}", f"{cpu:.1f}", f"{moved:.1f}" if moved else "", f"{count:.0f}"]
        cells += [_better(peer, results)] if seeds > 1 else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _same_rows(name: str) -> str:
    """What standard errors are not about."""
    if name != "Adult":
        return ""
    return "; all are judged on the same rows, which come with it: standard errors are of the methods alone"


def share_of_way(peer: str, means: Mapping[str, Sequence[float]], place: int) -> float | None:
    """From the better model alone to the best pooled one; None for these themselves, or without a way.

    ``place`` 0: by score, where more is better; 1: by log loss.
    """
    sign = 1.0 if place == 0 else -1.0
    alone = [sign * one[place] for name, one in means.items() if name.endswith("alone")]
    pooled = [sign * one[place] for name, one in means.items() if name.endswith("pooled")]
    if peer.endswith(("alone", "pooled")) or not alone or not pooled or not max(pooled) > max(alone):
        return None
    return (sign * means[peer][place] - max(alone)) / (max(pooled) - max(alone))


def _better(peer: str, results: Sequence[PeerResult]) -> str:
    """Than GAL, on the seeds that both have; empty for GAL itself, and for fewer than two."""
    theirs, ours = ({one.seed: one.score for one in results if one.peer == name} for name in (peer, GAL))
    ahead = [theirs[seed] - ours[seed] for seed in sorted(theirs.keys() & ours.keys())]
    if peer == GAL or len(ahead) < 2:
        return ""
    return f"{np.mean(ahead):+.4f} ({np.std(ahead, ddof=1) / np.sqrt(len(ahead)):.4f})"


def _names(results: Sequence[PeerResult]) -> list[str]:
    return list(dict.fromkeys(one.peer for one in results))


def _means(results: Sequence[PeerResult]) -> list[float]:
    facts = [
        (one.score, one.log_loss, one.seconds, one.cpu_seconds, one.megabytes, one.lines) for one in results
    ]
    return [float(mean) for mean in np.mean(facts, axis=0)]
