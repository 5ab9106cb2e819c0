"""``node.toml``, checked: an organization, its data and its policy. Every error names the file and the key."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from gal.core.local_losses import local_loss as find_local_loss
from gal.errors import ConfigurationError
from gal.models.registry import MODELS
from gal.node.config.data_source import DataSource, FilePath, Filled, Section
from gal.node.config.policy import Policy
from gal.protocol.names import check_name, check_proxy, parse_address

if TYPE_CHECKING:
    from gal.privacy.ledger import Budget

FILE = "node.toml"
LEDGER = "ledger.sqlite"
"""In the home folder: the spent privacy, by row."""


def _address(*, any_port: bool) -> AfterValidator:
    def check(value: str) -> str:
        parse_address(value, any_port=any_port)
        return value

    return AfterValidator(check)


def _known_model(value: str) -> str:
    """A name of the registry, or an import path; ``gal doctor`` tries to import it."""
    if value in MODELS or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        return value
    meant = f"choose one of {', '.join(MODELS)}, or package.module:Class"
    if close := difflib.get_close_matches(value, MODELS, n=1):
        meant = f"did you mean {close[0]}?"
    raise ValueError(f"no local model is called {value!r:.80}; {meant}")


def _known_loss(value: str) -> str:
    find_local_loss(value)
    return value


def _epsilon(value: float) -> float:
    from gal.privacy.accounting import check_epsilon

    check_epsilon(value)
    return value


Name = Annotated[str, AfterValidator(lambda value: check_name(value, "an organization"))]
Epsilon = Annotated[float, AfterValidator(_epsilon)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Delta = Annotated[float, Field(ge=0, lt=1)]


class ModelChoice(Section):
    """The local model: a name of the registry or ``package.module:Class``, with keyword arguments."""

    use: Annotated[str, AfterValidator(_known_model)] = "tabular"
    options: Mapping[str, Any] = Field(default_factory=dict)
    local_loss: Annotated[str, AfterValidator(_known_loss)] | None = None
    trusted: Annotated[tuple[Filled, ...], Field(strict=False)] = ()
    readable: Annotated[tuple[FilePath, ...], Field(strict=False)] = ()
    """Files and folders outside the home folder that it may read besides the data."""


class Listen(Section):
    """The address on which a label holder listens (``bind``), and the one that others dial (``address``)."""

    bind: Annotated[str, _address(any_port=True)]
    address: Annotated[str, _address(any_port=False)]


class NetworkAccess(Section):
    """The way to other organizations."""

    proxy: Annotated[str, AfterValidator(check_proxy)] | None = None


class Privacy(Section):
    """The most that others may learn: of labels by own tasks, and of own rows by replies."""

    label_epsilon: Positive | None = None
    """For all tasks on the same labels; None: no limit."""
    label_delta: Delta = 0.0
    column_epsilon: Positive | None = None
    """For the residuals of all own tasks, of the replies about one row; None: no limit."""
    column_delta: Delta = 0.0
    answer_noise: Literal["none", "laplace", "gaussian"] = "none"
    answer_clip: Positive | None = None
    """Public bound: values are clipped to +-answer_clip before noise is added."""
    answer_epsilon: Epsilon | None = None
    """The cost of one reply about one row: its K numbers of one round together."""
    answer_delta: Delta = 0.0
    answer_budget_epsilon: Positive | None = None
    """For all replies about one row, to all label holders, with noise of this node or of the terms of a sum;
    replies without noise are refused. None: no limit.
    """
    answer_budget_delta: Delta = 0.0

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        noise, gaussian = self.answer_noise, self.answer_noise == "gaussian"
        budget, cost = self.answer_budget_epsilon, self.answer_epsilon
        given = [
            name for name in type(self).model_fields if name.startswith("answer_") and getattr(self, name)
        ]
        useless = [
            name
            for name in given
            if noise == "none" and name != "answer_noise" and not name.startswith("answer_budget")
        ]
        # A budget with a larger delta may well have a smaller epsilon.
        small = budget is not None and cost is not None and budget < cost
        for wrong, why in (
            (self.label_delta and self.label_epsilon is None, "label_delta needs label_epsilon"),
            (self.column_delta and self.column_epsilon is None, "column_delta needs column_epsilon"),
            (self.answer_budget_delta and budget is None, "answer_budget_delta needs answer_budget_epsilon"),
            (
                self.column_epsilon is not None and not self.column_delta,
                "column_epsilon needs column_delta above 0, such as 1e-6: that noise is Gaussian",
            ),
            (
                useless,
                f'{", ".join(useless)} means nothing without answer_noise = "laplace" or "gaussian": replies '
                "without noise have no bounded cost",
            ),
            (noise != "none" and self.answer_clip is None, f'answer_noise = "{noise}" needs answer_clip'),
            (noise != "none" and cost is None, f'answer_noise = "{noise}" needs answer_epsilon'),
            (
                gaussian and not self.answer_delta,
                'answer_noise = "gaussian" needs answer_delta above 0, such as 1e-6',
            ),
            (
                noise == "laplace" and self.answer_delta,
                'answer_noise = "laplace" has no answer_delta: leave it out, or choose "gaussian"',
            ),
            (
                noise != "laplace" and budget is not None and not self.answer_budget_delta,
                "answer_budget_epsilon needs answer_budget_delta above 0, such as 1e-5, unless answer_noise = "
                '"laplace": the noise on sums is Gaussian',
            ),
            (
                small and self.answer_budget_delta <= self.answer_delta,
                f"answer_budget_epsilon = {budget} is less than the cost of one reply (answer_epsilon = {cost})",
            ),
        ):
            if wrong:
                raise ValueError(why)
        return self

    # Budgets; None: no limit, but the ledger has every charge.

    @property
    def label_budget(self) -> Budget | None:
        return _budget(self.label_epsilon, self.label_delta)

    @property
    def column_budget(self) -> Budget | None:
        return _budget(self.column_epsilon, self.column_delta)

    @property
    def answer_budget(self) -> Budget | None:
        return _budget(self.answer_budget_epsilon, self.answer_budget_delta)


def _budget(epsilon: float | None, delta: float) -> Budget | None:
    if epsilon is None:
        return None
    from gal.privacy.ledger import Budget

    return Budget(epsilon, delta)


class NodeFile(Section):
    """The content of ``node.toml``."""

    name: Name
    data: DataSource | None = None
    model: ModelChoice = ModelChoice()
    listen: Listen | None = None
    policy: Policy = Policy()
    privacy: Privacy = Privacy()
    network: NetworkAccess = NetworkAccess()

    @model_validator(mode="after")
    def _columns_of_the_default_model(self) -> Self:
        if self.data is not None and self.data.columns and self.model.use != "tabular":
            raise ValueError(
                'data.columns is for the model "tabular", which finds out what columns are: leave it out with '
                f"{self.model.use}"
            )
        return self


class NodeConfiguration(NodeFile):
    """``node.toml`` and its folder; paths are complete, sizes are bytes."""

    home: Path


def read_configuration(home: Path) -> NodeConfiguration:
    """Read and check ``node.toml`` in the home folder; one error for all wrong keys."""
    home = Path(home).absolute()
    try:
        text = (home / FILE).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        why = f"there is no {FILE} in {str(home)!r}: run gal init NAME to make a node"
        raise ConfigurationError(why) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{FILE} cannot be read: {error}") from error
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of brackets
        raise ConfigurationError(_syntax_error(str(error), text)) from error
    try:
        checked = NodeFile.model_validate(content, context={"home": home})
    except ValidationError as error:
        raise ConfigurationError(errors_by_key(FILE, error, NodeFile)) from error
    return NodeConfiguration(home=home, **dict(checked))


def home_of(given: Path | None = None) -> Path:
    """The node's home folder: the given one, GAL_HOME, the current folder, or the only node in it."""
    chosen = given or (Path(os.environ["GAL_HOME"]) if os.environ.get("GAL_HOME") else _only_node(Path.cwd()))
    home = chosen.expanduser().absolute()
    if not (home / FILE).is_file():
        hint = "" if given else " (name another folder with --home or GAL_HOME)"
        raise ConfigurationError(
            f"there is no {FILE} in {str(home)!r}{hint}: run gal init NAME to make a node"
        )
    return home


def _only_node(folder: Path) -> Path:
    """The folder itself if a node is in it, or the folder of the only node below; the folder where none is."""
    below = [] if (folder / FILE).is_file() else sorted(path.parent for path in folder.glob(f"*/{FILE}"))
    if len(below) > 1:
        names = ", ".join(path.name for path in below)
        raise ConfigurationError(
            f"there are several nodes here ({names}): choose one with --home {below[0].name}, or set GAL_HOME"
        )
    return below[0] if below else folder


def _syntax_error(message: str, text: str) -> str:
    """The message of tomllib, with the place first."""
    what, _, place = message.rpartition(" (at ")
    found = re.fullmatch(r"line (\d+), column (\d+)\)", place)
    line = found[1] if found else max(1, len(text.splitlines()))
    column = f", column {found[2]}" if found else ""
    return (
        f"{FILE}, line {line}{column}: not valid TOML: {what or message}. Text stands in quotes, lists in "
        "brackets"
    )


def errors_by_key(file: str, error: ValidationError, model: type[BaseModel]) -> str:
    """All errors of a validation, one in each line: file, key, what is wrong."""
    return "\n".join(f"{file}: {_dotted(one['loc'])}: {_problem(one, model)}" for one in error.errors())


def _dotted(place: Sequence[str | int]) -> str:
    """Such as policy.accept[0]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _problem(error: Any, model: type[BaseModel]) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown_key(error["loc"], model)
    if error["type"] == "missing":
        return "this key is missing"
    message = str(error["msg"])
    if error["type"] == "value_error":
        return message.removeprefix("Value error, ")
    if error["type"].startswith("model_type"):
        return f"should be a table such as [{_dotted(error['loc'])}], got {error['input']!r:.60}"
    return f"{message.removeprefix('Input ')}, got {error['input']!r:.60}"


def _unknown_key(place: Sequence[str | int], model: type[BaseModel]) -> str:
    key, known = str(place[-1]), _keys_at(model, place[:-1])
    close = difflib.get_close_matches(key.lower(), known, n=1)
    if close:
        return f"there is no such key; did you mean {close[0]}?"
    elsewhere = [
        section
        for section in ["", *model.model_fields]
        if key in _keys_at(model, [section] if section else [])
    ]
    if elsewhere:
        under = f"under [{elsewhere[0]}]" if elsewhere[0] else "at the top, before the first section"
        return f"there is no such key here; it belongs {under}"
    return f"there is no such key; there are {', '.join(known)}"


def _keys_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The keys that the table at this place may have."""
    for part in place:
        field = model.model_fields.get(str(part))
        annotation: Any = None if field is None else field.annotation
        inner = [
            one
            for one in (annotation, *get_args(annotation))
            if isinstance(one, type) and issubclass(one, BaseModel)
        ]
        if not inner:
            return []
        model = inner[0]
    return list(model.model_fields)


def new_configuration_text(name: str, **given: str | None) -> str:
    """The ``node.toml`` that ``gal init`` writes: known keys are set, all others are comments.

    ``given``: source, table, endpoint, region, row_id and label of [data], bind and address of [listen].
    """
    check_name(name, "an organization")
    known = {key: value for key, value in given.items() if value is not None}
    on = {"name": name} | known
    if "source" in known:
        on = {"[data]": "", "row_id": "id"} | on
    if "bind" in known or "address" in known:
        on = {"[listen]": "", "bind": "0.0.0.0:7443", "address": "bank.example:7443"} | on
    text = (files("gal.node.config") / "template.toml").read_text(encoding="utf-8")
    for key, value in on.items():
        if key in {"row_id", "label", "table"} and "source" not in known:
            continue
        if key.startswith("["):
            text = text.replace(f"# {key}\n", f"{key}\n")
            continue
        line = f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\\", r"\\")  # the escapes of TOML
        text, n_lines = re.subn(f'^# {key} = "[^"]*"', line, text, count=1, flags=re.M)
        assert n_lines == 1, key
    return text
