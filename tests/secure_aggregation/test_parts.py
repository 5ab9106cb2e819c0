"""The parts of a sum: fixed point, shares, masks, sealed boxes, what is on record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("cryptography", reason="cryptography is not installed")

from gal.errors import InvalidMessageError, InvalidReplyError
from gal.secure_aggregation.masking import (
    PRIME,
    SHARE_BYTES,
    STEPS,
    agreed,
    derived,
    draws,
    from_ring,
    join_shares,
    mask,
    public_key,
    seal,
    split_secret,
    to_ring,
    unseal,
)
from gal.secure_aggregation.record import Claim, Claims, DiskRecord, MemoryRecord


def drawn(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """As a member draws for rows 0, 1, ..."""
    rows = np.arange(len(values), dtype=np.uint64)
    return draws(b"a secret", rows, values.reshape(len(values), -1)).reshape(values.shape)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, 2.0**15 / 4 + 1])
def test_what_could_overflow_is_not_sent(value: float) -> None:
    to_ring(np.array([2.0**15 / 4 - 1]), 1.0, 4, drawn)
    with pytest.raises(InvalidReplyError, match="finite and smaller than"):
        to_ring(np.array([0.0, value]), 1.0, 4, drawn)


def test_rounding_is_right_on_average_and_between_the_two_next_numbers() -> None:
    parts = np.repeat([0.0, 0.125, 0.5, 0.9], 20_000)
    steps = from_ring(to_ring((7 + parts) / STEPS, 1.0, 3, drawn), 1.0) * STEPS
    assert set(steps) == {7.0, 8.0}
    for part in (0.0, 0.125, 0.5, 0.9):
        up = (steps[parts == part] - 7).mean()
        assert abs(up - part) <= 5 * np.sqrt(part * (1 - part) / 20_000)


def test_draws_are_the_same_again_and_others_for_all_else() -> None:
    """The same for a row and its value in any batch; for other rows, values, outputs and secrets anew."""
    rows, values = np.arange(3000, dtype=np.uint64), np.full((3000, 2), 0.3)
    first = draws(b"a secret", rows, values)
    assert (draws(b"a secret", rows[5:9], values[5:9]) == first[5:9]).all()
    others = [draws(b"another", rows, values), draws(b"a secret", rows, values * (1 + 2.0**-52))]
    others += [draws(b"a secret", rows + np.uint64(3000), values), first[:, ::-1]]
    for one in (first, *others):
        assert np.abs(np.histogram(one, 8, (0, 1))[0] - 750).max() < 5 * np.sqrt(750)
    for other in others:
        assert (other != first).all()
        assert abs(np.corrcoef(first[:, 0], other[:, 0])[0, 1]) < 5 / np.sqrt(3000)


def test_one_share_less_fits_every_secret() -> None:
    """With threshold - 1 shares there is, for any other secret, exactly one polynomial that goes through."""
    shares = split_secret(b"s" * 32, 3, 4)
    known = {1: int.from_bytes(shares[0], "big"), 2: int.from_bytes(shares[1], "big")}
    other = int.from_bytes(b"o" * 32, "big")
    # Lagrange through (0, other), (1, known), (2, known), at 3:
    third = (other - 3 * known[1] + 3 * known[2]) % PRIME
    made_up = {1: shares[0], 2: shares[1], 3: third.to_bytes(SHARE_BYTES, "big")}
    assert join_shares(made_up) == b"o" * 32
    assert third.to_bytes(SHARE_BYTES, "big") != shares[2]


def test_a_key_is_shared_by_two_alone() -> None:
    a, b, c = (bytes([byte]) * 32 for byte in (1, 2, 3))
    purpose = b"a purpose"
    assert agreed(a, public_key(b), purpose) == agreed(b, public_key(a), purpose)
    others = [agreed(a, public_key(c), purpose), agreed(c, public_key(b), purpose)]
    others += [agreed(a, public_key(b), b"another purpose")]
    assert agreed(a, public_key(b), purpose) not in others
    with pytest.raises(InvalidMessageError, match="a public key of low order"):
        agreed(a, bytes(32), purpose)


def test_masks_are_uniform_and_follow_from_the_seed() -> None:
    seed = derived(b"a secret", b"a purpose")
    found = mask(seed, (20_000, 2))
    assert (found == mask(seed, (20_000, 2))).all()
    assert (found != mask(derived(b"a secret", b"another"), (20_000, 2))).mean() > 0.999
    counts = np.bincount((found >> np.uint32(28)).astype(int).ravel(), minlength=16)
    assert (np.abs(counts - 2500) < 5 * np.sqrt(2500)).all()


def test_boxes_open_with_their_key_only() -> None:
    box = seal(b"k" * 32, b"a share")
    assert unseal(b"k" * 32, box, "lab") == b"a share"
    for key, data in ((b"l" * 32, box), (b"k" * 32, box[:-1] + bytes([box[-1] ^ 1])), (b"k" * 32, b"")):
        with pytest.raises(InvalidMessageError, match="shares of 'lab' cannot be opened"):
            unseal(key, data, "lab")


@pytest.fixture(params=["memory", "disk"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Claims:
    return MemoryRecord() if request.param == "memory" else DiskRecord(tmp_path / "sums.sqlite")


def test_a_claim_is_said_once(record: Claims) -> None:
    first = [Claim("opened", "1", "a b c"), Claim("row", "x", "a b c")]
    assert record.settle(first) == []
    assert record.settle(first) == []
    again = [Claim("opened", "2", "a b d"), Claim("row", "x", "a b d")]
    assert record.settle(again) == [Claim("row", "x", "a b c")]
    assert record.found("opened") == {"1": "a b c"}, "all of it is kept, or nothing"
    assert record.settle([Claim("other", "1", "z")]) == []


def test_claims_outlive_the_process(tmp_path: Path) -> None:
    DiskRecord(tmp_path / "sums.sqlite").settle([Claim("opened", "1", "a b c")])
    again = DiskRecord(tmp_path / "sums.sqlite")
    assert again.settle([Claim("opened", "1", "a b")]) == [Claim("opened", "1", "a b c")]
    assert again.found("opened") == {"1": "a b c"}
