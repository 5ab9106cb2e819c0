"""Alignment of the rows of several organizations.

Row ids (``row_ids``) are distinct whole numbers or text, none missing, and are compared exactly: ``"007"`` is
not ``7``, ``"Ann"`` is not ``"ann"``. Before the first round, the label holder and each organization agree on
the rows and their order by one of three methods, and compare ``row_digest`` of the result:

- ``plain``: the label holder sends its ids. The organization sees all of them, also those that it does not
  have; the label holder learns which of them the organization has. For public ids, such as product numbers.
- ``hashed``: the label holder sends keyed hashes of its ids (BLAKE2b, 16 bytes, with a secret that the
  parties share by another way). Readers without the secret learn nothing. **The parties themselves have it**:
  an organization recognizes its rows, and can find guessable ids (all telephone numbers, all birth dates)
  in the list. ``secret_digest`` shows different secrets early.
- ``psi``: private set intersection (extra ``psi``), pairwise between the label holder and each organization.
  **The label holder learns the pairwise intersection**: which of its ids this organization has, and how many
  ids it has in all. The organization learns the number of the label holder's ids, and then, from later
  requests, the shared ids. Both must be honest about their ids: an added guess shows whether the other side
  has it. 100,000 rows take about 20 seconds of one processor core on each side; the time grows with the rows.
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
