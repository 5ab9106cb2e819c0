"""``node.toml``: what one organization is, has and allows. Every error names the file and the key."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from gal.core.residual_losses import local_loss as find_local_loss
from gal.errors import ConfigurationError
from gal.models.registry import MODELS
from gal.node.config.data_source import DataSource, FilePath, Filled, Section
from gal.node.config.policy import Policy
from gal.protocol.names import check_name, check_proxy, parse_address

if TYPE_CHECKING:
    from gal.privacy.ledger import Budget

FILE = "node.toml"
LEDGER = "ledger.sqlite"
"""In the home folder: what was spent of privacy, by row."""


def _address(*, any_port: bool) -> AfterValidator:
    def check(value: str) -> str:
        parse_address(value, any_port=any_port)
        return value

    return AfterValidator(check)


def _known_model(value: str) -> str:
    """A name of the registry, or an import path; whether that can be imported is for ``gal doctor`` to see."""
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
    """Where a label holder listens (``bind``), and what the others dial (``address``)."""

    bind: Annotated[str, _address(any_port=True)]
    address: Annotated[str, _address(any_port=False)]


class Network(Section):
    """How to get out of the house."""

    proxy: Annotated[str, AfterValidator(check_proxy)] | None = None


class Privacy(Section):
    """How much others may learn at most: of the labels of own tasks, and of own rows by answers for others."""

    label_epsilon: Positive | None = None
    """For all tasks on the same labels together; None: no limit."""
    label_delta: Delta = 0.0
    column_epsilon: Positive | None = None
    """What residuals of all own tasks together may tell of what was answered about one row; None: no limit."""
    column_delta: Delta = 0.0
    answer_noise: Literal["none", "laplace", "gaussian"] = "none"
    answer_clip: Positive | None = None
    """Public bound of answers: they are cut at +-answer_clip before noise is added."""
    answer_epsilon: Epsilon | None = None
    """What one answer about one row costs: its K numbers of one round together."""
    answer_delta: Delta = 0.0
    answer_budget_epsilon: Positive | None = None
    """For all answers about one row, to everybody, together; None: no limit."""
    answer_budget_delta: Delta = 0.0

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        noise, gaussian = self.answer_noise, self.answer_noise == "gaussian"
        budget, cost = self.answer_budget_epsilon, self.answer_epsilon
        given = [
            name for name in type(self).model_fields if name.startswith("answer_") and getattr(self, name)
        ]
        useless = [name for name in given if noise == "none" and name != "answer_noise"]
        # A budget with a larger delta may well have a smaller epsilon.
        small = None not in (budget, cost) and (budget or 0) < (cost or 0)
        small = small and self.answer_budget_delta <= self.answer_delta
        such = "above 0, such as"
        for wrong, said in (
            (self.label_delta and self.label_epsilon is None, "label_delta needs label_epsilon"),
            (self.column_delta and self.column_epsilon is None, "column_delta needs column_epsilon"),
            (self.answer_budget_delta and budget is None, "answer_budget_delta needs answer_budget_epsilon"),
            (
                self.column_epsilon is not None and not self.column_delta,
                f"column_epsilon needs column_delta {such} 1e-6: that noise is Gaussian",
            ),
            (
                useless,
                f'{", ".join(useless)} means nothing without answer_noise = "laplace" or "gaussian": an answer '
                "without noise costs infinitely much",
            ),
            (noise != "none" and self.answer_clip is None, f'answer_noise = "{noise}" needs answer_clip'),
            (noise != "none" and cost is None, f'answer_noise = "{noise}" needs answer_epsilon'),
            (
                gaussian and not self.answer_delta,
                f'answer_noise = "gaussian" needs answer_delta {such} 1e-6',
            ),
            (
                noise == "laplace" and self.answer_delta,
                'answer_noise = "laplace" has no answer_delta: leave it out, or choose "gaussian"',
            ),
            (
                gaussian and budget is not None and not self.answer_budget_delta,
                "answer_budget_epsilon needs answer_budget_delta above 0 with answer_noise = "
                '"gaussian", such as 1e-5',
            ),
            (
                small,
                f"answer_budget_epsilon = {budget} is less than a single answer costs (answer_epsilon = "
                f"{cost}): nothing could ever be answered",
            ),
        ):
            if wrong:
                raise ValueError(said)
        return self

    @property
    def label_budget(self) -> Budget | None:
        """For what leaves about the labels; None: no limit, but everything is in the ledger."""
        return _budget(self.label_epsilon, self.label_delta)

    @property
    def column_budget(self) -> Budget | None:
        """For what residuals of own tasks tell of what was answered about one row; None: no limit."""
        return _budget(self.column_epsilon, self.column_delta)

    @property
    def answer_budget(self) -> Budget | None:
        """For all answers about one row together; None: no limit, but everything with noise is in the ledger."""
        return _budget(self.answer_budget_epsilon, self.answer_budget_delta)


def _budget(epsilon: float | None, delta: float) -> Budget | None:
    if epsilon is None:
        return None
    from gal.privacy.ledger import Budget

    return Budget(epsilon, delta)


class NodeFile(Section):
    """What ``node.toml`` may say."""

    name: Name
    data: DataSource | None = None
    model: ModelChoice = ModelChoice()
    listen: Listen | None = None
    policy: Policy = Policy()
    privacy: Privacy = Privacy()
    network: Network = Network()

    @model_validator(mode="after")
    def _columns_of_the_default_model(self) -> Self:
        if self.data is not None and self.data.columns and self.model.use != "tabular":
            raise ValueError(
                f'data.columns is for the model "tabular", which reads columns as they are; {self.model.use} takes '
                "them as the source has them: leave data.columns out"
            )
        return self


class NodeConfiguration(NodeFile):
    """All of ``node.toml`` and the folder in which it is; paths are complete, sizes are bytes."""

    home: Path


def read_configuration(home: Path) -> NodeConfiguration:
    """Read and check ``node.toml`` in the home folder; all its errors are said at once, each with its key."""
    home = Path(home).absolute()
    text = _text_of(home / FILE)
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
    """The node's home folder: the one given, or GAL_HOME, or the current folder, or the one node in it."""
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
            f"there are several nodes here ({names}): say which with --home {below[0].name}, or set GAL_HOME"
        )
    return below[0] if below else folder


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"there is no {FILE} in {str(path.parent)!r}: run gal init NAME to make a node"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{FILE} cannot be read: {error}") from error


def _syntax_error(said: str, text: str) -> str:
    """tomllib ends its message with the place; ours begins with it."""
    what, _, place = said.rpartition(" (at ")
    found = re.fullmatch(r"line (\d+), column (\d+)\)", place)
    line = found[1] if found else max(1, len(text.splitlines()))
    column = f", column {found[2]}" if found else ""
    return (
        f"{FILE}, line {line}{column}: not valid TOML: {what or said}. Text stands in quotes, lists in "
        "brackets"
    )


def errors_by_key(file: str, error: ValidationError, model: type[BaseModel]) -> str:
    """All errors of a validation, one in each line: file, key, what is wrong."""
    return "\n".join(f"{file}: {_dotted(one['loc'])}: {_said(one, model)}" for one in error.errors())


def _dotted(place: Sequence[str | int]) -> str:
    """Such as policy.accept[0]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _said(error: Any, model: type[BaseModel]) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown_key(error["loc"], model)
    if error["type"] == "missing":
        return "this key is missing"
    said = str(error["msg"])
    if error["type"] == "value_error":
        return said.removeprefix("Value error, ")
    if error["type"].startswith("model_type"):
        return f"should be a table such as [{_dotted(error['loc'])}], got {error['input']!r:.60}"
    return f"{said.removeprefix('Input ')}, got {error['input']!r:.60}"


def _unknown_key(place: Sequence[str | int], model: type[BaseModel]) -> str:
    """That there is no such key, and which one may have been meant."""
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
        inner = [one for one in (annotation, *get_args(annotation)) if _is_model(one)]
        if not inner:
            return []
        model = inner[0]
    return list(model.model_fields)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def new_configuration_text(name: str, **given: str | None) -> str:
    """The ``node.toml`` that ``gal init`` writes: what is known is set, all else is there to be uncommented.

    ``given``: source, table, endpoint, region, row_id and label of [data], bind and address of [listen].
    """
    check_name(name, "an organization")
    known = {key: value for key, value in given.items() if value is not None}
    on = {"name": name} | known
    if "source" in known:
        on = {"[data]": "", "row_id": "id"} | on
    if "bind" in known or "address" in known:
        on = {"[listen]": "", "bind": "0.0.0.0:7443", "address": "bank.example:7443"} | on
    text = TEMPLATE
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


TEMPLATE = """\
# The node of one organization. gal doctor checks it.
# name = ""

# Your own rows. They never leave; what leaves is in the audit log: gal audit.
# [data]
# source = "rows.csv"              # a .csv, .parquet or .xlsx file, a folder of Parquet files, s3://bucket/folder,
                                   # or a database: postgresql://user@host/name; a path is relative to this folder
# table = "patients"               # of a database; or sql
# sql = "select * from patients"   # of a database, instead of table: a query
# password_file = "db.password"    # of a database; or the variable GAL_DATA_PASSWORD, or .pgpass. Never in here
# timeout = 600                    # seconds that one reading of a database may take
# endpoint = "https://minio:9000"  # of an object store other than Amazon's
# region = "eu-central-1"          # of an object store
# row_id = "id"                    # the column that names a row, the same at all organizations
# row_id_type = "text"             # "text" keeps leading zeros; "integer" makes whole numbers of text
# features = ["age", "bp"]         # columns that the local model uses; default: all but row_id and label
# columns = { zip = "category" }   # what a column is, where gal doctor shows a wrong guess
# label = "target"                 # the column that you want to predict, for tasks of your own
# secret_file = "alignment.secret" # a file with the secret that the parties share, for keyed hashes of row ids

# The local model: runs here, stays here.
[model]
use = "tabular"                    # or linear, ridge, svr, knn, gradient_boosting, hist_gradient_boosting,
                                   # random_forest, network, shared_body, or package.module:Class of your own
# options = { alpha = 1.0 }        # keyword arguments of the model
# local_loss = "l2"                # what it minimises: l1, l1.5, l2, l4, huber
# trusted = ["mypackage.MyClass"]  # types of your own that stored models may hold
# readable = ["/srv/weights"]      # what it may read besides your data and Python, such as pretrained weights

# Only for label holders: the one port that others dial. Who only assists opens none.
# [listen]
# bind = "0.0.0.0:7443"
# address = "bank.example:7443"    # host and port as others reach it; it goes into your card

# What you allow others to ask of you. Shown are the defaults.
[policy]
# accept = ["bank"]                # who may ask; default: everybody whose invitation you joined
# max_rounds = 50                  # of one learning
# max_rows = 10_000_000            # that one learning or prediction may name
# min_rows = 20                    # fewest rows that are fitted: no probing of small groups
# rounds_per_label_holder = 10_000  # fits in all for each of them, also of a cross-validation's parts
# fit_cpu_seconds = 3600           # of one fit, or one prediction
# fit_memory = "4GB"               # of one fit, or one prediction
# predictions_per_day = 1_000_000  # rows, for each label holder
# small_predictions_per_day = 100_000 # about fewer than min_rows rows that you know; 0: only in bulk
# unknown_ids_per_day = 100_000    # in predictions, for each label holder: no trying out who is known here
# refused_begins_per_day = 20      # beginnings that fail, for each label holder
# interactions = false             # true: consent to interaction probes, which can reveal your columns
# largest_message = "1GB"          # that is taken in
# messages_per_day = 250_000       # of one peer, besides answers that you asked for; then it is not heard
# bytes_per_day = "100GB"          # the same in bytes
# refusals_per_day = 5_000         # messages of one peer that are refused; then it is not heard
# disk_per_peer = "50GB"           # kept on your disk for all tasks of one label holder

# What others may learn at most. Default: no noise, and no limits; gal privacy shows what was spent.
# [privacy]
# label_epsilon = 2.0              # of one row's label, over all tasks of your own together
# label_delta = 1e-6
# column_epsilon = 20.0            # of the answers about one row, by residuals of all tasks of your own
# column_delta = 1e-6
# answer_noise = "gaussian"        # on your answers to others: none, laplace or gaussian
# answer_clip = 3.0                # answers are cut at +-3 first; residuals have a root mean square of about 1
# answer_epsilon = 1.0             # of one answer about one row (all its numbers of one round)
# answer_delta = 1e-6              # with gaussian only
# answer_budget_epsilon = 20.0     # of all answers about one row together
# answer_budget_delta = 1e-5

# [network]
# proxy = "http://proxy:3128"      # to get out of the house; default: the variable https_proxy
"""
