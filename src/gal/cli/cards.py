"""``gal cards``: cards of other organizations, added, listed and removed without a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gal.cli.options import AsJson, Home
from gal.cli.screen import Screen, escape, print_facts, print_rows
from gal.errors import InvalidInputError

cards = typer.Typer(
    help="Cards of other organizations: add, list and remove them, without a restart.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@cards.command()
def add(
    file: Annotated[Path, typer.Argument(help="A card that another organization gave you.")],
    name: Annotated[str | None, typer.Option(help="Its name here; default: the name on the card.")] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Accept a new key of a known name, without the old key's signature."),
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Add the card of another organization. Check its fingerprint with them, by telephone for example."""
    from gal.node.config.configuration import home_of, read_configuration
    from gal.transport import CardFolder, load_identity, read_card

    folder, card = home_of(home), read_card(file)
    own = read_configuration(folder).name
    if load_identity(folder, own).fingerprint == card.fingerprint:
        raise InvalidInputError(
            f"{str(file)!r} is the card of {own} itself: give it to the others, and add here the cards that "
            "they give you (--home names another node)"
        )
    known = CardFolder(folder / "cards").add(card, name, replace=replace)

    def show(out: Screen) -> None:
        out.print(f"The card of [bold]{escape(known)}[/] was added; its key is {card.fingerprint}")
        out.print("[dim]Compare it with theirs (there: gal status) before you work together.[/]")

    print_facts({"name": known, "fingerprint": card.fingerprint}, as_json, show)


@cards.command(name="list")
def list_cards(home: Home = None, as_json: AsJson = False) -> None:
    """Show all known organizations."""
    from gal.node.config.configuration import home_of
    from gal.transport import CardFolder

    warnings: list[str] = []
    known = CardFolder(home_of(home) / "cards", on_warning=warnings.append).all()
    facts = {name: {"fingerprint": card.fingerprint, "address": card.address} for name, card in known.items()}
    print_facts(facts, as_json, lambda out: _print_cards(facts, out, warnings))


def _print_cards(facts: dict[str, Any], out: Screen, warnings: list[str]) -> None:
    for warning in warnings:
        out.print(f"[yellow]{escape(warning)}[/]")
    if not facts:
        out.print("No cards yet. Add one with: gal cards add FILE")
        return
    rows = [[name, one["fingerprint"], one["address"] or ""] for name, one in sorted(facts.items())]
    print_rows(["name", "fingerprint", "listens at"], rows, out)


@cards.command("remove")
def remove_card(
    name: Annotated[str, typer.Argument(help="The organization's name here.")],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Remove a card: the organization is refused from now on, also on an open stream."""
    from gal.node.config.configuration import home_of
    from gal.transport import CardFolder

    CardFolder(home_of(home) / "cards").remove(name)
    print_facts(
        {"removed": name},
        as_json,
        lambda out: out.print(f"The card of {escape(name)} was removed: its messages are refused now."),
    )


@cards.command()
def rotate(home: Home = None, as_json: AsJson = False) -> None:
    """Make a new key and card for this organization: others add the card with --replace."""
    from gal.node.admin.init import rotate_key
    from gal.node.config.configuration import home_of, read_configuration

    folder = home_of(home)
    path, fingerprint = rotate_key(folder, read_configuration(folder))

    def show(out: Screen) -> None:
        out.print(f"New key {fingerprint}. Give the new card to every organization: {escape(str(path))}")
        out.print(
            "Until you restart gal serve the old key is in use: restart it once they have added the card "
            "(there: gal cards add FILE --replace)."
        )

    print_facts({"card": str(path), "fingerprint": fingerprint}, as_json, show)
