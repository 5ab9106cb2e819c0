"""How large the base install is, and what each extra adds: files of the distributions in this environment, as
they are on record there. An extra of which something is not installed is said to be so.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "gal-learn"


@cache
def megabytes(name: str) -> float:
    """Of one distribution's files; PackageNotFoundError where it is not installed."""
    return sum(file.size or 0 for file in distribution(name).files or ()) / 1e6


def required(name: str, extra: str) -> Iterator[tuple[str, str]]:
    """What a distribution needs for one of its extras, or in any case (""): names, each with an extra."""
    for text in distribution(name).requires or ():
        one = Requirement(text)
        marker = one.marker
        in_any_case = marker is None or marker.evaluate({"extra": ""})
        if in_any_case if not extra else not in_any_case and marker and marker.evaluate({"extra": extra}):
            yield from ((canonicalize_name(one.name), also) for also in ("", *one.extras))


def everything(extra: str) -> tuple[set[str], set[str]]:
    """All distributions that an install with this extra brings, and those of them that are not here."""
    found, lacking, left = set[tuple[str, str]](), set[str](), [(OURS, ""), (OURS, extra)]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            try:
                left += required(*one)
            except PackageNotFoundError:
                lacking.add(one[0])
    return {name for name, _ in found} - lacking, lacking


def main() -> None:
    """A line for the base and for each extra."""
    base, _ = everything("")
    for extra in ("", *metadata(OURS).get_all("Provides-Extra", [])):
        here, lacking = everything(extra)
        added = sorted(here - base if extra else here, key=megabytes, reverse=True)
        size = sum(map(megabytes, added))
        most = ", ".join(f"{name} {megabytes(name):.0f}" for name in added[:3])
        said = f"{size:6.0f} MB in {len(added)} distributions" + (f": {most}" if most else "")
        why = f"not installed: {', '.join(sorted(lacking))}"
        print(f"{extra or 'base':10s} {why if lacking else said}")


if __name__ == "__main__":
    main()
