"""Rows: which row of one organization is which row of another, and who learns what by finding out.

Every organization names its rows by a column of ids (``row_ids``): whole numbers or text, none
missing, none twice. Ids are compared exactly as they are: ``"007"`` is not ``7``, ``"Ann"`` is not
``"ann"``. Before the first round, the label holder and each organization agree on a list of rows and
its order by one of three methods:

``plain`` The label holder sends its ids. The organization sees all ids that are asked about, also of
    people whom it does not know; the label holder learns which of them it knows. Right where the ids are no
    secret, such as numbers of products.

``hashed`` The label holder sends keyed hashes of its ids (BLAKE2b, 16 bytes, with a secret that the parties
    share by another way). Somebody without the secret learns nothing from them. **The parties themselves have
    it**: an organization recognises the rows that it knows, and can try out guessable ids (all telephone
    numbers, all birth dates) to find out who else is in the list. The label holder learns which of its rows
    are known.
    Right where the parties trust each other, but not whoever may see a copy of the messages later.

``psi`` Private set intersection (extra ``psi``), pairwise between the label holder and each organization.
    **The label holder learns the pairwise intersection**: which of its ids this organization knows, and how
    many ids it has in all. The organization learns how many ids the label holder has. Then it learns, from
    the rows that it is asked
    for, the shared ids. Ids outside of the intersection stay unknown to the other side. Both must be honest
    about the ids that they put in: who adds guessed ids learns whether the other has them. It takes about 20
    seconds of one processor core on each side for 100,000 rows (the time grows with the rows).

Both sides then compute ``row_digest`` of the agreed rows in their order, compare it before round 1 and send
it with every message: rows that are not the same rows in the same order are noticed, never used. Hashes of
different secrets are noticed before, by ``secret_digest``.
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
