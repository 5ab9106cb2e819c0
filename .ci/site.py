"""Look through the built site: it fetches nothing from elsewhere, and has every page of docs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build/site"
FETCHED = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'> ]+)"""
)
IMPORTED = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"') ]+)""")


def main() -> None:
    wrong = []
    for path in sorted([*SITE.rglob("*.html"), *SITE.rglob("*.css")]):
        found = (FETCHED if path.suffix == ".html" else IMPORTED).findall(path.read_text(encoding="utf-8"))
        wrong += [f"{path.relative_to(SITE)} fetches {address}" for address in found]
    for page in sorted((ROOT / "docs").glob("*.md")):
        if not (SITE / f"{page.stem}.html").exists():
            wrong.append(f"{page.name} is not in the site")
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(
        f"{len(list(SITE.glob('*.html')))} pages in {SITE.relative_to(ROOT)}, nothing fetched from elsewhere"
    )


if __name__ == "__main__":
    main()
