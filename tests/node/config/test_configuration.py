"""node.toml: what it may say, and that every error names file and key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gal.errors import ConfigurationError
from gal.node.config.configuration import (
    NodeConfiguration,
    home_of,
    new_configuration_text,
    read_configuration,
)
from gal.node.config.policy import Policy


def read(home: Path, text: str) -> NodeConfiguration:
    (home / "node.toml").write_text(text, encoding="utf-8")
    return read_configuration(home)


def errors_of(home: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(home, text)
    return str(caught.value).splitlines()


def test_a_name_is_enough(tmp_path: Path) -> None:
    found = read(tmp_path, 'name = "lab"')
    assert found.data is None
    assert found.listen is None
    assert found.model.use == "tabular"
    assert found.policy == Policy()
    assert (found.policy.min_rows, found.policy.interactions) == (20, False)


DATA = 'name = "lab"\n[data]\nsource = "a.csv"\nrow_id = "id"\n'
WRONG: dict[str, tuple[str, str]] = {
    "no name": ("[policy]\n", "name: this key is missing"),
    "a bad name": ('\nname = "../x"', "name: an organization needs a name of 1 to 64 letters"),
    "an unknown key": (DATA + 'rowid = "x"', "data.rowid: there is no such key; did you mean row_id?"),
    "nothing like it": ('name = "a"\nzzz = 1', "zzz: there is no such key; there are name, data"),
    "the wrong section": (
        'name = "a"\n[model]\nmax_rounds = 3',
        "model.max_rounds: there is no such key here; it belongs under \\[policy\\]",
    ),
    "a missing key": ('name = "a"\n# here\n[data]\nsource = "x.csv"', "data.row_id: this key is missing"),
    "an unknown file": (
        'name = "a"\n[data]\nsource = "a.xls"\nrow_id = "b"',
        "data: source must end in .csv",
    ),
    "the label as row id": (DATA + 'label = "id"', "data: label and row_id are both 'id'"),
    "the label as feature": (
        DATA + 'label = "y"\nfeatures = ["y"]',
        "data: features has 'y', which is the label",
    ),
    "a feature twice": (DATA + 'features = ["x", "x"]', "data: features has 'x' more than once"),
    "an unknown model": ('name = "a"\nmodel.use = "tabluar"', "model.use: .* did you mean tabular?"),
    "an unknown loss": (
        'name = "a"\n[model]\nlocal_loss = "l9"',
        "model.local_loss: unknown local loss 'l9'",
    ),
    "a text as number": (
        'name = "a"\n[policy]\nmax_rounds = "5"',
        "policy.max_rounds: should be a valid integer, got '5'",
    ),
    "no rows left": ('name = "a"\n[policy]\nmax_rows = 5', "policy: min_rows = 20 is more than max_rows = 5"),
    "a bad peer": (
        'name = "a"\n[policy]\naccept = ["b", "../c"]',
        r"policy.accept\[1\]: an organization in accept needs",
    ),
    "a proxy": (
        'name = "a"\n[network]\nproxy = "proxy:3128"',
        "network.proxy: network.proxy must look like http://",
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG.keys())
def test_every_error_names_file_and_key(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"^node.toml: {said}"):
        read(tmp_path, text)


def test_all_errors_are_said_at_once(tmp_path: Path) -> None:
    text = 'name = "lab"\n[policy]\nmax_rounds = 0\nmin_rwos = 3\n[data]\nsource = "a.csv"\n'
    found = errors_of(tmp_path, text)
    assert {line.split(":")[1] for line in found} == {
        " policy.max_rounds",
        " policy.min_rwos",
        " data.row_id",
    }


SYNTAX = {
    "an open text": ('name = "a\n', "node.toml, line 1"),
    "a key twice": ('name = "a"\nname = "b"\n', "node.toml, line 2"),
}


@pytest.mark.parametrize(("text", "said"), SYNTAX.values(), ids=SYNTAX.keys())
def test_errors_of_syntax_name_the_line_too(text: str, said: str, tmp_path: Path) -> None:
    assert errors_of(tmp_path, text)[0].startswith(said)


def test_files_that_are_no_text_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no node.toml in .*run gal init NAME"):
        read_configuration(tmp_path)
    (tmp_path / "node.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"node.toml cannot be read"):
        read_configuration(tmp_path)


def test_where_home_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = [tmp_path / name for name in ("given", "variable", "current")]
    for home in homes:
        home.mkdir()
        (home / "node.toml").write_text('name = "a"')
    monkeypatch.chdir(homes[2])
    monkeypatch.delenv("GAL_HOME", raising=False)
    assert home_of() == homes[2]
    monkeypatch.setenv("GAL_HOME", str(homes[1]))
    assert home_of() == homes[1]
    assert home_of(homes[0]) == homes[0]
    with pytest.raises(ConfigurationError, match=r"no node.toml in .*: run gal init NAME"):
        home_of(tmp_path)


GIVEN: list[dict[str, Any]] = [
    {},
    {"source": "rows.parquet", "row_id": 'the "id"', "label": "größe"},
    {"source": "rows.csv", "address": "bank.example:7443"},
    {"bind": "127.0.0.1:0", "address": "[::1]:7443"},
    {"source": "postgresql://me@host/db", "table": "patients"},
]


@pytest.mark.parametrize("given_", GIVEN)
def test_what_init_writes_can_be_read(given_: dict[str, Any], tmp_path: Path) -> None:
    found = read(tmp_path, new_configuration_text("lab", **given_))
    assert found.name == "lab"
    assert (found.data is not None) == ("source" in given_)
    if found.data is not None:
        assert found.data.source == (given_["source"] if "table" in given_ else tmp_path / given_["source"])
        assert found.data.table == given_.get("table")
        assert (found.data.row_id, found.data.label) == (given_.get("row_id", "id"), given_.get("label"))
    assert (found.listen is not None) == ("address" in given_)
    if found.listen is not None:
        assert found.listen.address == given_["address"]


def uncommented(text: str, *, but: tuple[str, ...] = ()) -> str:
    """The text with every commented key and section in force, except for some keys."""
    lines = []
    for line in text.splitlines():
        bare = line.removeprefix("# ")
        is_key = re.match(r"\[\w+\]|\w+ = ", bare) and not bare.startswith(but)
        lines.append(bare if is_key else line)
    return "\n".join(lines)


def test_every_commented_line_of_it_holds_when_uncommented(tmp_path: Path) -> None:
    text = new_configuration_text("lab", source="rows.csv", row_id="id", label="y")
    of_databases, of_stores = ("table", "password_file"), ("endpoint", "region")
    found = read(tmp_path, uncommented(text, but=("sql", *of_databases, *of_stores)))
    assert found.policy.accept == ("bank",)
    defaults = read(tmp_path, 'name = "a"').policy
    assert found.policy.model_copy(update={"accept": None}) == defaults
    for source, but in (
        ("postgresql://me@host/db", ("sql", *of_stores)),
        ("s3://bucket/rows", ("sql", *of_databases)),
    ):
        text = new_configuration_text("lab", source=source, row_id="id", label="y")
        data = read(tmp_path, uncommented(text, but=but)).data
        assert data is not None
        assert data.address == source


def test_it_mentions_every_key_there_is() -> None:
    content = tomllib.loads(uncommented(new_configuration_text("lab")))
    for name, field in NodeConfiguration.model_fields.items():
        if name not in {"home", "name"}:
            either = [field.annotation, *getattr(field.annotation, "__args__", ())]
            section = next(one for one in either if hasattr(one, "model_fields"))
            assert set(content[name]) == set(section.model_fields)
