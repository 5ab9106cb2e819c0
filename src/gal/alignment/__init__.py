"""Alignment of the rows of several organizations.

Every organization names its rows by a column of ids (``row_ids``): distinct whole numbers or text, none
missing. Ids are compared exactly: ``"007"`` is not ``7``, ``"Ann"`` is not ``"ann"``. Before the first round,
the label holder and each organization agree on a list of rows and its order by one of three methods:

``plain`` The label holder sends its ids. The organization sees all of them, also of people whom it does not
    know; the label holder learns which of them it knows. For ids that are no secret, such as product numbers.

``hashed`` The label holder sends keyed hashes of its ids (BLAKE2b, 16 bytes, with a secret that the parties
    share by another way). Others without the secret learn nothing from them. **The parties themselves have
    it**: an organization recognises the rows that it knows, and can find guessable ids (all telephone
    numbers, all birth dates) in the list. The label holder learns which of its rows are known. For parties
    that trust each other, but not later readers of the messages.

``psi`` Private set intersection (extra ``psi``), pairwise between the label holder and each organization.
    **The label holder learns the pairwise intersection**: which of its ids this organization knows, and how
    many ids it has in all. The organization learns the number of the label holder's ids, and then, from later
    requests, the shared ids. Other ids stay unknown to the other side. Both must be honest about their ids:
    an added guess shows whether the other side has it. 100,000 rows take about 20 seconds of one processor
    core on each side; the time grows with the rows.

Both sides compute ``row_digest`` of the agreed rows in their order, compare it before round 1 and send it
with every message, so that different rows are noticed and never used. ``secret_digest`` shows different
secrets before.
"""

from gal.alignment.ids import RowIds, check_overlap, check_same_kind, row_ids
from gal.alignment.psi import Asker, Holder
from gal.alignment.tokens import (
    METHODS,
    Index,
    check_distinct,
    check_tokens,
    read_secret,
    row_digest,
    secret_digest,
    tokens,
)

__all__ = [
    "METHODS",
    "Asker",
    "Holder",
    "Index",
    "RowIds",
    "check_distinct",
    "check_overlap",
    "check_same_kind",
    "check_tokens",
    "read_secret",
    "row_digest",
    "row_ids",
    "secret_digest",
    "tokens",
]
