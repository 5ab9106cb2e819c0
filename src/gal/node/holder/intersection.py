"""Private set intersection over a link: the label holder learns which of her rows an
organization has, and no other.
"""

from __future__ import annotations

from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds
from gal.errors import InvalidMessageError, RefusedError
from gal.node.holder.assistants import Assistants
from gal.protocol import Message, prepare


def shared_positions(
    assistants: Assistants, name: str, task: str, version: int, ids: RowIds, seconds: float
) -> NDArray[np.intp] | None:
    """Positions of her rows that the organization has, too; None where it did not answer in time."""
    from gal.alignment.psi import Asker

    asker, exchange = Asker(ids), uuid4().hex

    def ask(step: str, content: bytes | None) -> bytes | None:
        fields = {"step": step, "kind": ids.kind, "exchange": exchange, "n_rows": len(ids)}
        arrays = {} if content is None else {"bytes": np.frombuffer(content, dtype=np.uint8)}
        message = Message("blind", task, version, f"blind {step} {exchange}", fields, arrays)
        return _answer(assistants, name, message, seconds)

    setup = ask("setup", None)
    response = None if setup is None else ask("response", asker.request())
    if setup is None or response is None:
        return None
    try:
        return asker.shared(setup, response)
    except InvalidMessageError as error:
        raise InvalidMessageError(f"{name}: {error}") from error


def _answer(assistants: Assistants, name: str, message: Message, seconds: float) -> bytes | None:
    pending = assistants.post(name, prepare(message))
    assistants.wait_for(pending.done.is_set, seconds)
    assistants.give_up([pending])
    if pending.answer is None:
        return None
    answer = pending.answer.message
    if answer.kind != "blinded":
        said = answer.fields.get("message", f"answered with {answer.kind}")
        raise RefusedError(str(answer.fields.get("code", "refused")), f"{name}: {said}")
    return answer.arrays["bytes"].tobytes()
