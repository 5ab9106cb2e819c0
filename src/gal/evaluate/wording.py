"""Numbers and lists as people read them, in the terminal and in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gal.core.contributions import Verdict

VERDICT_WORDS: Mapping[Verdict, str] = {
    "helped": "helped",
    "no gain": "no gain: next to nothing",
    "unclear": "unclear: too few rows to tell",
    "hurt": "hurt: better without",
}


def number(value: float) -> str:
    """Four digits that count, and no 0 with a minus.

    >>> number(253.14), number(68.534), number(0.5014), number(-0.00001)
    ('253.1', '68.53', '0.501', '0.0000')
    """
    if abs(value) >= 10:
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.2f}"
    said = f"{value:.3f}" if abs(value) >= 0.1 or value == 0 else f"{value:.4f}"
    return said.removeprefix("-") if float(said) == 0 else said


def bytes_in_words(count: int) -> str:
    """A number of bytes in a unit that fits.

    >>> [bytes_in_words(count) for count in (1, 999, 1000, 35360, 150_000, 1_500_000, 2 * 10**9, 10**16)]
    ['1 byte', '999 bytes', '1.0 kB', '35.4 kB', '150.0 kB', '1.5 MB', '2.0 GB', '10,000.0 TB']
    """
    if count < 1000:
        return f"{count:,} byte{'' if count == 1 else 's'}"
    power = min((len(str(count)) - 1) // 3, 4)
    return f"{count / 1000**power:,.1f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def names_in_words(names: Sequence[str]) -> str:
    """Names within a sentence.

    >>> names_in_words(["lab", "insurer", "pharmacy"])
    'lab, insurer and pharmacy'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def share_in_words(share: float) -> str:
    """A share of the pooling gain, wherever people read one; nobody gains more than all of it.

    >>> share_in_words(0.59), share_in_words(0.996), share_in_words(1.16)
    ('59% of the pooling gain', 'as good as pooled', 'as good as pooled')
    """
    rounded = f"{share:.0%}"
    return "as good as pooled" if share >= 1 or rounded == "100%" else f"{rounded} of the pooling gain"


__all__ = ["bytes_in_words", "names_in_words", "number", "share_in_words"]
