"""Look through the built site: nothing comes from elsewhere, every page is there, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build/site"
FETCHED = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'> ]+)"""
)
IMPORTED = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"') ]+)""")


LINKED = re.compile(r"""<(?:a|img|link|script)\b[^>]*?\b(?:href|src)=["']?([^"'>#? ]+)""")


def nowhere(path: Path) -> list[str]:
    """What a page links to that is not there; the page for what is not found has other addresses."""
    if path.name == "404.html":
        return []
    found = set(LINKED.findall(path.read_text(encoding="utf-8")))
    own = [unquote(one) for one in found if not re.match(r"[a-z]+:|//", one)]
    return [one for one in own if not (path.parent / one).exists()]


def main() -> None:
    wrong = []
    for path in sorted([*SITE.rglob("*.html"), *SITE.rglob("*.css")]):
        found = (FETCHED if path.suffix == ".html" else IMPORTED).findall(path.read_text(encoding="utf-8"))
        wrong += [f"{path.relative_to(SITE)} fetches {address}" for address in found]
        if path.suffix == ".html":
            wrong += [f"{path.relative_to(SITE)} links to {one}, which is not there" for one in nowhere(path)]
    for page in sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")):
        if not (SITE / page.with_suffix(".html")).exists():
            wrong.append(f"{page} is not in the site")
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(
        f"{len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}, nothing fetched from elsewhere"
    )


if __name__ == "__main__":
    main()
