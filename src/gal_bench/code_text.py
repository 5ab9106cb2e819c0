"""Source text without what computes nothing: comments, docstrings and empty lines."""

from __future__ import annotations

import ast
import io
import tokenize


def code_text(source: str) -> str:
    """What is left of a module, line by line; the same on every version of Python.

    Positions come from the parser, but the text is the file's own: dumps of syntax trees differ by version.

    >>> print(code_text('def f(x):\\n    "Adds one."\\n\\n    return x + 1  # not two\\n'))
    def f(x):
        return x + 1
    """
    lines = source.encode().split(b"\n")  # the parser counts columns in bytes
    for start, end in [*_strings(source), *_comments(source)]:
        _blank_out(lines, start, end)
    return "\n".join(line.decode().rstrip() for line in lines if line.strip())


def _strings(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where strings stand alone as statements: docstrings of modules, classes, functions and values."""
    return [
        (
            (node.lineno, node.col_offset),
            (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset),
        )
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def _comments(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            before = len(token.line[: token.start[1]].encode())
            found.append(((token.start[0], before), (token.start[0], before + len(token.string.encode()))))
    return found


def _blank_out(lines: list[bytes], start: tuple[int, int], end: tuple[int, int]) -> None:
    """Put spaces there; lines count from 1, columns from 0."""
    for number in range(start[0], end[0] + 1):
        line = lines[number - 1]
        first = start[1] if number == start[0] else 0
        last = end[1] if number == end[0] else len(line)
        lines[number - 1] = line[:first] + b" " * (last - first) + line[last:]
