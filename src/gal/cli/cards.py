"""``gal cards``: whom this organization knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from gal.cli.options import AsJson, Home
from gal.cli.screen import Screen, print_table
from gal.errors import InvalidInputError

cards = typer.Typer(
    help="Whom this organization knows: cards of others, added, listed and removed without a restart.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@cards.command()
def add(
    file: Annotated[Path, typer.Argument(help="A card that another organization handed you.")],
    name: Annotated[
        str | None, typer.Option(help="Call it so here; default: the name on the card.", show_default=False)
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Take a new key for a known name, without the old key's signature."),
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Know another organization from now on. Check the fingerprint with them, by telephone for example."""
    from gal.node.config.configuration import home_of
    from gal.transport import CardFolder, read_card

    folder, card = home_of(home), read_card(file)
    _refuse_own(folder, card.fingerprint)
    known = CardFolder(folder / "cards").add(card, name, replace=replace)
    if as_json:
        typer.echo(json.dumps({"name": known, "fingerprint": card.fingerprint}))
        return
    out = Screen()
    out.print(f"[bold]{escape(known)}[/] is known now, by the key {card.fingerprint}")
    out.print("[dim]Compare this fingerprint with theirs (there: gal status) before you rely on it.[/]")


def _refuse_own(folder: Path, fingerprint: str) -> None:
    """Whoever adds the own card meant to hand it to somebody, or is in another node's folder."""
    from gal.node.config.configuration import read_configuration
    from gal.transport import load_identity

    own = read_configuration(folder).name
    if load_identity(folder, own).fingerprint == fingerprint:
        raise InvalidInputError(
            f"this is the card of {own} itself: hand it to the others, and add here the cards that they hand "
            "you (--home names another node)"
        )


@cards.command(name="list")
def list_cards(home: Home = None, as_json: AsJson = False) -> None:
    """Show all known organizations."""
    from gal.node.config.configuration import home_of
    from gal.transport import CardFolder

    warnings: list[str] = []
    known = CardFolder(home_of(home) / "cards", on_warning=warnings.append).all()
    if as_json:
        facts = {
            name: {"fingerprint": card.fingerprint, "address": card.address} for name, card in known.items()
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    out = Screen()
    for warning in warnings:
        out.print(f"[yellow]{escape(warning)}[/]")
    table = Table("name", "fingerprint", "listens at")
    for name, card in sorted(known.items()):
        table.add_row(escape(name), card.fingerprint, escape(card.address or ""))
    if known:
        print_table(table, out)
    else:
        out.print("Nobody is known yet: gal cards add FILE")


@cards.command("remove")
def remove_card(
    name: Annotated[str, typer.Argument(help="The organization's name here.")],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Revoke: from now on this organization is refused, also on a stream that is open."""
    from gal.node.config.configuration import home_of
    from gal.transport import CardFolder

    CardFolder(home_of(home) / "cards").remove(name)
    if as_json:
        typer.echo(json.dumps({"removed": name}))
        return
    Screen().print(f"{escape(name)} is not known any more.")


@cards.command()
def rotate(home: Home = None, as_json: AsJson = False) -> None:
    """Make a new key and card for this organization: others add the card with --replace."""
    from gal.node.admin.init import rotate_key
    from gal.node.config.configuration import home_of, read_configuration

    folder = home_of(home)
    path, fingerprint = rotate_key(folder, read_configuration(folder))
    if as_json:
        typer.echo(json.dumps({"card": str(path), "fingerprint": fingerprint}))
        return
    out = Screen()
    out.print(f"New key {fingerprint}. Hand the new card to everybody: {escape(str(path))}")
    out.print(
        "Restart gal serve once they have added it (there: gal cards add FILE --replace): until then the old "
        "key is in use."
    )
