"""What an organization allows: sizes, limits, the sentences of refusals, rounding."""

from __future__ import annotations

import pytest

from gal.errors import RefusedError
from gal.node.config.policy import Policy, PolicyLimits

SMALL = Policy(accept=("bank",), max_rounds=5, max_rows=1000, min_rows=20, predictions_per_day=100)
LIMITS = PolicyLimits("hospital", SMALL)


def refusal(check: object, *arguments: object) -> tuple[str, str]:
    """Code and sentence of a refusal."""
    assert callable(check)
    with pytest.raises(RefusedError) as caught:
        check(*arguments)
    return caught.value.code, str(caught.value)


def test_what_is_within_the_limits_passes() -> None:
    LIMITS.check_peer("bank")
    LIMITS.check_invitation("bank", 5, 0)
    LIMITS.check_begin(1000)
    LIMITS.check_begin(20)
    LIMITS.check_fit(20, 5)
    LIMITS.check_predict(100, 0)
    LIMITS.check_predict(0, 100)


@pytest.mark.parametrize(
    ("check", "arguments", "code", "limit"),
    [
        ("check_peer", ("insurer",), "not-accepted", "accept"),
        ("check_invitation", ("insurer", 1, 0), "not-accepted", "accept"),
        ("check_invitation", ("bank", 6, 0), "too-many-rounds", "5 rounds"),
        ("check_invitation", ("bank", 5, 1), "no-interactions", "policy.interactions = false"),
        ("check_interactions", (), "no-interactions", "policy.interactions = false"),
        ("check_begin", (1001,), "too-many-rows", "1000 rows"),
        ("check_begin", (19,), "too-few-rows", "20 rows"),
        ("check_fit", (19, 1), "too-few-rows", "20 rows"),
        ("check_fit", (100, 6), "too-many-rounds", "5 rounds"),
        ("check_predict", (101, 0), "budget-spent", "100 rows a day"),
        ("check_predict", (1, 100), "budget-spent", "0 are left"),
        ("check_predict", (1, 150), "budget-spent", "0 are left"),
    ],
)
def test_beyond_a_limit_is_refused(check: str, arguments: tuple[object, ...], code: str, limit: str) -> None:
    found, sentence = refusal(getattr(LIMITS, check), *arguments)
    assert found == code
    assert "hospital" in sentence
    assert limit in sentence
    assert "operator" in sentence


def test_who_consents_to_interaction_probes_gets_them() -> None:
    consenting = PolicyLimits("hospital", Policy(interactions=True))
    consenting.check_invitation("bank", 5, 16)
    consenting.check_interactions()
    consenting.check_own_interactions()
    code, sentence = refusal(LIMITS.check_own_interactions)
    assert code == "no-interactions"
    assert "hospital, the label holder" in sentence
    assert "policy.interactions = true" in sentence


def test_nobody_may_ask_where_accept_is_empty_and_all_where_it_is_absent() -> None:
    PolicyLimits("hospital", Policy()).check_peer("anybody")
    assert refusal(PolicyLimits("hospital", Policy(accept=())).check_peer, "bank")[0] == "not-accepted"


def test_a_refusal_tells_neither_who_else_is_accepted_nor_how_many_rows_there_were() -> None:
    assert "bank" not in refusal(LIMITS.check_peer, "insurer")[1]
    assert "17" not in refusal(LIMITS.check_fit, 17, 1)[1]
    assert "17" not in refusal(LIMITS.check_begin, 17)[1]
