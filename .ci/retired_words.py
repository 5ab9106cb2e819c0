"""Count the words that the glossary retired, British spelling and long sentences, per folder.

``retired_words.toml`` beside this file lists the words and the exceptions, each with its reason.
``--where WORD`` prints the lines; ``--fail`` exits with 1 while one is left or an exception matches nothing.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
LISTS = HERE / "retired_words.toml"
SUFFIXES = {"", ".py", ".md", ".toml", ".html", ".css", ".js", ".yml", ".yaml", ".service", ".ipynb"}
LONGEST_SENTENCE = 30
FOLDERS = ("src", "tests", "benchmarks", ".ci", "deploy", "examples", "docs", "research", "README.md",
           "CONTRIBUTING.md", "CHANGELOG.md")  # fmt: skip
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Everything that holds no sentence: code, tables, headings, HTML, front matter, admonition marks.
NO_PROSE = re.compile(
    r"\A---\n.*?\n---\n|^ *```.*?^ *```|<!--.*?-->|^ *(?:\||#|<|[!?]{3}|={3}|\[[^\]]+\]:).*?$",
    re.MULTILINE | re.DOTALL,
)
PARAGRAPH = re.compile(r"\n *\n|\n(?= *(?:[-*+]|\d+\.) )")
SENTENCE_END = re.compile(r"(?<=[.!?:;])[)\"*_`]*\s+(?=[\"'(*_`\[A-Z0-9])")


class Found(NamedTuple):
    """One retired word: what it is listed as, and where it stands."""

    word: str
    path: str
    line: int
    text: str


class Exception_(NamedTuple):
    """Where a listed word may stand: files, a pattern of the line, and why."""

    word: str
    files: str
    line: str
    reason: str

    def covers(self, found: Found) -> bool:
        """Whether this is about that word at that place."""
        return (
            fnmatch.fnmatch(found.word, self.word)
            and fnmatch.fnmatch(found.path, self.files)
            and re.search(self.line, found.text) is not None
        )


def split_identifiers(text: str) -> str:
    """The text with snake_case, kebab-case and CamelCase as words; lines stay where they are."""
    return CAMEL.sub(" ", text.replace("_", " ").replace("-", " "))


def pattern(expression: str) -> re.Pattern[str]:
    """A listed expression, in either case unless it begins with a capital; a space is also a line's end."""
    flags = re.NOFLAG if expression[0].isupper() else re.IGNORECASE
    spaced = expression.replace(" ", r"(?:[ \t]*\n[ \t#>*|/]*|\s+)")
    return re.compile(rf"\b(?:{spaced})\b", flags)


def found_words(path: str, text: str, words: dict[str, re.Pattern[str]]) -> Iterator[Found]:
    """Each listed word in a file's name (line 0) and in its text."""
    lines = text.splitlines()
    spaced = split_identifiers(text)
    for word, expression in words.items():
        if expression.search(split_identifiers(Path(path).stem)):
            yield Found(word, path, 0, path)
        for match in expression.finditer(spaced):
            line = spaced.count("\n", 0, match.start())
            yield Found(word, path, line + 1, lines[line].strip() if line < len(lines) else "")


def long_sentences(path: str, text: str) -> Iterator[Found]:
    """Sentences of a page with more words than one reads at once."""
    blank = NO_PROSE.sub(lambda match: "\n" * match.group().count("\n") or " ", text)
    place = 0
    for paragraph in PARAGRAPH.split(blank):
        start = blank.index(paragraph, place)
        place = start + len(paragraph)
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
        for sentence in SENTENCE_END.split(plain.strip()):
            count = len(re.findall(r"\S*\w\S*", sentence))
            if count > LONGEST_SENTENCE:
                first = start + max(paragraph.find(sentence[:20]), 0)
                line = blank.count("\n", 0, first) + 1
                yield Found("long sentence", path, line, f"{count} words: {' '.join(sentence.split())}")


def is_page(path: str) -> bool:
    """Whether it is a page to read: the documentation without generated results, and the pages beside it."""
    return path in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md") or (
        path.startswith("docs/") and path.endswith(".md") and not path.startswith("docs/results/")
    )


def check(root: Path, files: list[str], lists: Path = LISTS) -> tuple[list[Found], list[Exception_]]:
    """What is left in these files, and exceptions that cover nothing."""
    listed = tomllib.loads(lists.read_text(encoding="utf-8"))
    words = {word: pattern(expression) for word, expression in listed["words"].items()}
    on_pages = words | {word: pattern(expression) for word, expression in listed["pages"].items()}
    exceptions = [Exception_(**one) for one in listed.get("exceptions", [])]
    found: list[Found] = []
    for path in files:
        text = (root / path).read_text(encoding="utf-8")
        found += found_words(path, text, on_pages if is_page(path) else words)
        if is_page(path):
            found += long_sentences(path, text)
    used = {one for one in exceptions if any(one.covers(each) for each in found)}
    left = [each for each in found if not any(one.covers(each) for one in exceptions)]
    return left, [one for one in exceptions if one not in used]


def folder_of(path: str) -> str:
    """The column of the table a file counts in."""
    return next((folder for folder in FOLDERS if path == folder or path.startswith(folder + "/")), "other")


def table(found: list[Found]) -> str:
    """Counts: a line per word, a column per folder."""
    counts = Counter((each.word, folder_of(each.path)) for each in found)
    folders = [folder for folder in (*FOLDERS, "other") if any(key[1] == folder for key in counts)]
    rows = [["", *folders, "all"]]
    for word in sorted({each.word for each in found}):
        numbers = [counts[word, folder] for folder in folders]
        rows.append([word, *map(str, numbers), str(sum(numbers))])
    totals = [sum(counts[key] for key in counts if key[1] == folder) for folder in folders]
    rows.append(["all", *map(str, totals), str(sum(totals))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(n.rjust(w) for n, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def main() -> int:
    """Print the counts, or the lines of one word."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="*", help="only these files or folders, as src/gal/core")
    parser.add_argument("--where", metavar="WORD", help="print the lines of this word, or of all")
    parser.add_argument("--fail", action="store_true", help="exit with 1 while anything is found")
    given = parser.parse_args()
    root = HERE.parent
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *given.paths],
        cwd=root, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    own = {f".ci/{LISTS.name}", "docs/reference/glossary.md"}  # they name the retired words
    files = [
        path
        for path in sorted(set(tracked) - own)
        if Path(path).suffix in SUFFIXES and Path(path).name != "LICENSE" and (root / path).is_file()
    ]
    left, unused = check(root, files)
    if given.where:
        for each in left:
            if given.where in ("all", each.word):
                print(f"{each.path}:{each.line}: {each.word}: {each.text}")
    elif left:
        print(table(left))
    if not given.paths:
        for one in unused:
            print(f"exception without a case: {one.word} in {one.files} ({one.line})")
    return int(given.fail and bool(left or (unused and not given.paths)))


if __name__ == "__main__":
    sys.exit(main())
