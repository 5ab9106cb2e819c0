"""A hostile label holder, which relays all messages of a sum: its attacks, and their results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from gal.errors import InvalidMessageError, RefusedError
from gal.secure_aggregation.collector import Collector
from gal.secure_aggregation.masking import derived, join_shares, mask
from gal.secure_aggregation.member import GroupMember, add_pair, pair_mask
from gal.secure_aggregation.messages import Ask, Group
from gal.secure_aggregation.record import DiskRecord, MemoryRecord
from gal.transport.identity import make_identity
from small_groups import (
    HOLDER,
    NAMES,
    Round,
    answers,
    group_of,
    identity,
    member_of,
    renamed,
    restarted,
    written,
)


def started(drop_outs: int = 1, number: int = 1) -> Round:
    group = group_of(NAMES, drop_outs)
    return Round(group, {name: member_of(group, name) for name in NAMES}, number)


def again(one: Round, number: int = 2) -> Round:
    """Another sum with the same members."""
    return Round(one.group, one.members, number)


# --- false drop-outs


def test_members_help_to_open_a_sum_for_one_set_of_members() -> None:
    """It has all four replies. Its messages include the bank for some members, and exclude it for others."""
    one, said = started().keys(), answers()
    one.ask(said)
    without_bank = NAMES[1:]
    with pytest.raises(RefusedError, match="bank, which replied, must be among them"):
        one.members["bank"].open(1, without_bank)
    for name in without_bank:
        one.members[name].open(1, NAMES)
        with pytest.raises(RefusedError, match="helped to open a sum of the same with other members"):
            one.members[name].open(1, without_bank)
    assert one.members["lab"].open(1, NAMES) == one.members["lab"].open(1, NAMES), (
        "the same again is the same"
    )


@pytest.mark.parametrize("told_that_it_is_in", [0, 1, 2, 3])
def test_both_secrets_of_one_never_come_together(told_that_it_is_in: int) -> None:
    """Any division of the members leaves too few shares of one of the bank's secrets."""
    one, said = started().keys(), answers()
    one.ask(said)
    seeds, keys = 0, 0
    for place, name in enumerate(NAMES[1:]):
        there = NAMES if place < told_that_it_is_in else NAMES[1:]
        opening = one.members[name].open(1, there)
        seeds += "bank" in opening.seeds
        keys += "bank" in opening.keys
    own = one.members["bank"].open(1, NAMES)  # its message includes it
    seeds += "bank" in own.seeds
    assert seeds + keys == 4
    assert min(seeds, keys) < one.group.threshold


@pytest.mark.parametrize(("colluding", "broken"), [(("shop",), False), (("lab", "shop"), True)])
def test_how_many_must_collude_for_both_secrets(colluding: tuple[str, ...], broken: bool) -> None:
    """With m members of which d may drop out: m - 2d, as the page says, and not one less."""
    one, said = started(drop_outs=1).keys(), answers()
    secrets = one.members["bank"]._pending[1].secrets
    one.ask(said)
    assert broken == (len(colluding) >= len(NAMES) - 2)
    held = {name: one.members[name]._pending[1].shares["bank"] for name in colluding}
    keys = {one.group.place(name): shares[0] for name, shares in held.items()}
    seeds = {one.group.place(name): shares[1] for name, shares in held.items()}
    honest = [name for name in NAMES[1:] if name not in colluding]
    seeds[one.group.place("bank")] = one.members["bank"].open(1, NAMES).seeds["bank"]
    for name in honest:  # each gets the message that discloses the most
        if len(seeds) < one.group.threshold:
            seeds[one.group.place(name)] = one.members[name].open(1, NAMES).seeds["bank"]
        else:
            keys[one.group.place(name)] = one.members[name].open(1, NAMES[1:]).keys["bank"]
    found = []
    for shares in (seeds, keys):
        try:
            found.append(join_shares(shares))
        except InvalidMessageError:
            found.append(b"")
    assert ([secrets.seed, secrets.mask_key] == found) == broken


def test_a_withheld_reply_stays_masked_by_its_own_mask() -> None:
    """It opens the sum without the bank, whose reply it has: it gets the bank's mask key, not its seed."""
    one, said = started().keys(), answers()
    asked = one.collector.ask("a residual", (20, 2), 1.0)
    held_back = one.members["bank"].answer(
        asked, one.collector.boxes_for("bank"), said["bank"], content="a residual", unit=1.0
    )
    del said["bank"]
    one.ask(said)
    openings = [one.members[name].open(1, NAMES[1:]) for name in NAMES[1:]]
    shares = {one.group.place(opening.name): opening.keys["bank"] for opening in openings}
    key = join_shares(shares)
    left = held_back.values
    for offer in one.collector.offers():
        if offer.name != "bank":
            left = add_pair(
                left, offer.name, "bank", pair_mask(key, offer.mask_key, asked, offer.name, "bank")
            )
    own = one.members["bank"]._pending[1].secrets.seed
    bare = left - mask(derived(own, b"own " + asked.digest.encode()), asked.shape)
    assert (bare == written("bank", answers()["bank"])).all(), "the test takes away all masks that it can"
    assert all("bank" not in opening.seeds for opening in openings)
    assert (left != bare).all()


def test_without_drop_outs_seeds_of_all_but_one_open_nothing() -> None:
    """It has all replies and every seed but the shop's, and colludes with two of the four: the other two
    share a mask whose key neither of them sent.
    """
    one, said = started(drop_outs=0).keys(), answers()
    keys = {name: one.members[name]._pending[1].secrets.mask_key for name in NAMES}
    asked = one.collector.ask("a residual", (20, 2), 1.0)
    masked = {
        name: one.members[name].answer(asked, {}, said[name], content="a residual", unit=1.0)
        for name in NAMES
    }
    with pytest.raises(RefusedError, match="a sum needs 4 of the 4 members"):
        one.members["lab"].open(1, NAMES[:3])
    seed = one.members["lab"].open(1, NAMES).seeds["lab"]
    left = masked["lab"].values - mask(derived(seed, b"own " + asked.digest.encode()), asked.shape)
    offers = {offer.name: offer for offer in one.collector.offers()}
    for name in ("bank", "insurer"):  # which collude
        pair = pair_mask(keys[name], offers["lab"].mask_key, asked, name, "lab")
        left = add_pair(left, name, "lab", pair)
    bare = written("lab", said["lab"])
    assert (left != bare).all()
    pair = pair_mask(keys["shop"], offers["lab"].mask_key, asked, "shop", "lab")
    assert (add_pair(left, "shop", "lab", pair) == bare).all(), "the test takes away all masks that it can"
    for name in NAMES:
        one.collector.take_masked(masked[name])
    with pytest.raises(RefusedError, match="3 members have helped to open it, 4 are needed"):
        one.open(NAMES[:3])


def test_a_dropped_member_is_in_no_later_sum() -> None:
    """Otherwise many pairs of sums of about the same residual would differ in its reply."""
    one, said = started().keys(), answers()
    one.ask(said, arriving=NAMES[1:])
    one.open()
    with pytest.raises(RefusedError, match="bank dropped out of an earlier sum"):
        again(one).keys()
    later = again(one, 3).keys(NAMES[1:])
    later.ask(answers(NAMES[1:]), content="another residual")
    assert later.open().shape == (20, 2)


def test_no_more_drop_out_than_was_agreed() -> None:
    one, said = started().keys(), answers()
    one.ask(said, arriving=NAMES[1:])
    one.open()
    with pytest.raises(RefusedError, match="bank, insurer not there: a sum needs 3 of the 4 members"):
        again(one).keys(NAMES[2:])


# --- two sums that differ in one member


def test_of_one_residual_there_is_one_sum() -> None:
    one, said = started().keys(), answers()
    one.ask(said)
    first = one.open()
    fewer = again(one).keys(NAMES[1:])
    with pytest.raises(RefusedError, match="has helped to open a sum of the same for bank insurer lab shop"):
        fewer.ask({name: said[name] for name in NAMES[1:]})
    same = again(one, 3).keys()
    same.ask(said)
    assert (same.open() == first).all(), "the same sum again discloses nothing new: values are rounded once"


def test_of_one_row_there_is_one_sum() -> None:
    """It predicts a row with all members, and again, in another batch, without the bank."""
    one, said = started().keys(), answers()
    one.ask(said, content="rows 1 to 20", rows=[f"{row:064x}" for row in range(20)])
    one.open()
    other = again(one).keys()
    rows = [f"{row:064x}" for row in range(19, 39)]
    other.ask(said, content="rows 19 to 38", rows=rows, arriving=NAMES[1:])
    with pytest.raises(RefusedError, match="with other members, and does so once"):
        other.open()


def test_it_holds_across_restarts(tmp_path: Path) -> None:
    group = group_of(NAMES, 1)
    records = {name: DiskRecord(tmp_path / f"{name}.sqlite") for name in NAMES}
    one = Round(group, {name: member_of(group, name, records[name]) for name in NAMES}).keys()
    said = answers()
    one.ask(said)
    one.open()
    back = {name: restarted(group, name, DiskRecord(tmp_path / f"{name}.sqlite")) for name in NAMES}
    with pytest.raises(RefusedError, match="no keys for sum 1"):
        back["lab"].open(1, NAMES)
    with pytest.raises(RefusedError, match="has replied in sum 1: take a new number"):
        back["lab"].offer(1)
    fewer = Round(group, back, 2).keys(NAMES[1:])
    with pytest.raises(RefusedError, match="has helped to open a sum of the same"):
        fewer.ask({name: said[name] for name in NAMES[1:]})


def test_it_is_on_record_before_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    one = started().keys()
    one.ask(answers())

    def fails(claims: object) -> list[object]:
        raise OSError("the disk is full")

    monkeypatch.setattr(one.members["lab"]._record, "settle", fails)
    with pytest.raises(OSError, match="full"):
        one.members["lab"].open(1, NAMES)


# --- invented members


def test_one_key_under_two_names_is_one_member() -> None:
    prints = {name: identity(name).fingerprint for name in ("bank", "lab")}
    group = Group(HOLDER, {**prints, "shop": prints["bank"]})
    with pytest.raises(RefusedError, match="one key is twice among the members"):
        GroupMember(identity("lab"), group, set(prints.values()), MemoryRecord(), secret=b"")
    own = replace(group_of(NAMES[:3]), holder=identity("bank").fingerprint)
    with pytest.raises(RefusedError, match="or is the label holder's"):
        member_of(own, "lab")


def test_keys_in_the_name_of_another_are_refused() -> None:
    """It sends its own keys in the bank's name, to read the shares and agree on the masks."""
    one = started()
    offers = {name: one.members[name].offer(1) for name in NAMES}
    own = make_identity("bank")
    known = {own.fingerprint, *(identity(name).fingerprint for name in NAMES[1:])}
    prints = {**one.group.members, "bank": own.fingerprint}
    impostor = GroupMember(own, replace(one.group, members=prints), known, MemoryRecord(), secret=b"")
    for forged in (
        impostor.offer(1),
        replace(impostor.offer(1), certificate=identity("bank").certificate),
        replace(offers["bank"], mask_key=impostor.offer(1).mask_key),
        replace(offers["bank"], promise=impostor.offer(1).promise),
        replace(offers["bank"], certificate=b"nothing"),
    ):
        with pytest.raises(RefusedError, match=r"not signed by|cannot be used"):
            one.members["lab"].share(1, [*(offers[name] for name in NAMES[1:]), forged])
        with pytest.raises(RefusedError, match=r"not signed by|cannot be used"):
            Collector(one.group, 1).take_offer(forged)
    one.members["lab"].share(1, list(offers.values()))


def test_a_member_with_anothers_key_takes_no_mask_away() -> None:
    """The shop colludes, and offers the bank's key as its own. The lab adds the mask of one and subtracts
    that of the other; if both were the same, its reply would keep only its own mask.
    """
    names = ("bank", "lab", "shop")
    group = group_of(names)
    one = Round(group, {name: member_of(group, name) for name in names})
    offers = {name: one.members[name].offer(1) for name in names}
    copied = replace(offers["shop"], mask_key=offers["bank"].mask_key)
    copied = replace(copied, signature=identity("shop").sign(copied.signed_words(group.digest)))
    one.members["lab"].share(1, [offers["bank"], offers["lab"], copied])
    asked, said = Ask(1, names, "a residual", (20, 2), 1.0), answers(names)
    masked = one.members["lab"].answer(asked, {}, said["lab"], content="a residual", unit=1.0)
    seed = one.members["lab"].open(1, names).seeds["lab"]
    left = masked.values - mask(derived(seed, b"own " + asked.digest.encode()), asked.shape)
    assert (left != written("lab", said["lab"], 3)).all()


# --- theft of a member's memory


@pytest.mark.parametrize("drop_outs", [0, 1])
def test_keys_are_gone_when_they_are_not_needed_any_more(drop_outs: int) -> None:
    """A thief of a member's memory cannot remove masks from replies recorded earlier."""
    one = started(drop_outs).keys()
    before = one.members["lab"]._pending[1].secrets
    one.ask(answers())
    held = one.members["lab"]._pending[1]
    assert (held.secrets.mask_key, held.secrets.box_key) == (b"", b"")
    first = one.members["lab"].open(1, NAMES)
    assert before.mask_key not in (secrets := held.secrets).__dict__.values()
    assert (secrets.seed, held.shares, held.own_shares) == (b"", {}, (b"", b""))
    assert one.members["lab"].open(1, NAMES) == first, "the same again is the same"


# --- replays


def test_offers_and_lists_of_another_sum_are_refused() -> None:
    one = started()
    old = [one.members[name].offer(1) for name in NAMES]
    two = again(one)
    new = {name: one.members[name].offer(2) for name in NAMES}
    with pytest.raises(RefusedError, match="expected one of bank, insurer, lab, shop for sum 2"):
        two.members["lab"].share(2, [old[0], *(new[name] for name in NAMES[1:])])
    with pytest.raises(RefusedError, match="not signed by"):
        two.members["lab"].share(2, [replace(old[0], number=2), *(new[name] for name in NAMES[1:])])
    smaller = group_of(NAMES[:3])
    of_smaller = member_of(smaller, "bank").offer(2)
    with pytest.raises(RefusedError, match="not signed by"):
        two.members["lab"].share(2, [of_smaller, *(new[name] for name in NAMES[1:])])


def test_no_mask_is_used_twice() -> None:
    """Two answers under the same masks would give their difference away."""
    one, said = started().keys(), answers()
    asked = one.ask(said)
    with pytest.raises(RefusedError, match="cannot reply in sum 1 now, or not again"):
        one.members["lab"].answer(
            asked, one.collector.boxes_for("lab"), said["bank"], content="a residual", unit=1.0
        )
    with pytest.raises(RefusedError, match="has given its shares"):
        one.members["lab"].share(1, one.collector.offers())
    with pytest.raises(RefusedError, match="has replied in sum 1: take a new number"):
        one.members["lab"].offer(1)


# --- weights that leave fewer than three answers


def test_weights_told_to_one_alone_give_noise() -> None:
    """It requests the lab's reply with weight 1, the others' with 0: masks of unequal requests remain."""
    one, said = started(0).keys(), answers()
    asked = {name: replace(one.collector.ask("rate 0", (20, 2), 1.0)) for name in NAMES}
    asked["lab"] = replace(asked["lab"], content="rate 1", unit=1.0)
    for name in NAMES:
        values = said[name] if name == "lab" else np.zeros((20, 2))
        boxes = one.collector.boxes_for(name)
        one.collector.take_masked(
            one.members[name].answer(asked[name], boxes, values, content=asked[name].content, unit=1.0)
        )
    assert np.abs(one.open() - said["lab"]).min() > 1.0


def test_a_member_cannot_join_in_anothers_name() -> None:
    with pytest.raises(RefusedError, match="this aggregation group does not have 'shop' with its key"):
        GroupMember(
            renamed("bank", "shop"),
            group_of(),
            set(group_of().members.values()),
            MemoryRecord(),
            secret=b"",
        )
