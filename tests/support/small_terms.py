"""Terms of a task for tests that need some, and do not care which."""

from __future__ import annotations

from typing import Any

from gal.node.config.invitations import TaskTerms


def small_terms(task: str, name: str, label_holder: str = "clinic", **more: Any) -> TaskTerms:
    """Terms that could be a task's; ``more`` are fields that matter."""
    fields: dict[str, Any] = {
        "fingerprint": "sha256:" + "0" * 64,
        "organizations": (),
        "outputs": 1,
        "rounds": 3,
    }
    return TaskTerms(task=task, name=name, label_holder=label_holder, **fields | more)
