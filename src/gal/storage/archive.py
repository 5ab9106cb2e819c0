"""A model as one file: a zip of JSON (facts, ensemble) and skops (fitted models).

Nothing in it is executed. On reading, skops builds objects of trusted types only: classes, never functions,
of scikit-learn, its dependencies and GAL, and those that the reader names.
"""

from __future__ import annotations

import io
import json
import os
import pkgutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gal.core.missing import KeptReplies
from gal.core.state import Ensemble, ensemble_of, plain
from gal.errors import StoredModelError
from gal.storage import format_4
from gal.storage.rereading import reread

FORMAT, EARLIER = 5, 4
"""The format of an archive, and the one before, which is read, too."""
TRUSTED = ("gal.", "sklearn.", "numpy.", "scipy.", "pandas.")
"""Packages with trusted classes."""
BODIES = tuple(
    f"gal.models.deep.networks.{kind}_body" for kind in ("cnn", "residual_cnn", "wide_cnn", "lstm", "mlp")
)
OWN = ("stacker", "probes", "kept_replies")
"""Fitted attributes of an ensemble, each with a file in the archive."""
HARMLESS = frozenset({"builtins.range", "functools.partial", "sklearn.utils.validation.check_array", *BODIES})
"""Trusted functions: scikit-learn's trees with categories hold a partial of ``check_array``, networks the
function of their body. A partial of any other function is refused, because skops names the function, too."""


def write_archive(
    path: str | Path, facts: Mapping[str, Any], ensemble: Ensemble | None, objects: Any
) -> None:
    """Write facts, ensemble and objects to one file in one atomic step.

    Parameters
    ----------
    path: the file to write.
    facts: plain data, stored as JSON.
    ensemble: an ensemble, or None.
    objects: fitted models in lists and mappings, stored by skops.
    """
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise StoredModelError(
            f"cannot write {str(path)!r}: it is a folder, or lies in one that does not exist"
        )
    content = {"format": FORMAT, "facts": dict(facts), "ensemble": plain(ensemble)}
    kept = {"models.skops": objects}
    for name in OWN if ensemble is not None else ():
        if (one := getattr(ensemble, name)) is not None:  # no row is stored
            kept[f"{name}.skops"] = one.stored() if isinstance(one, KeptReplies) else one
    try:
        text = json.dumps(content)
        written = {name: _written(one) for name, one in kept.items()}
    except Exception as error:
        raise StoredModelError(
            f"this model cannot be saved: {error}. Without pickle, classes and functions among its local "
            "models, losses and parameters are stored by name: move them to an importable module."
        ) from error
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("gal.json", text)
        for name, data in written.items():
            archive.writestr(name, data)
    draft.replace(target)


def _written(objects: Any) -> bytes:
    """The bytes of ``skops.io.dumps`` without indentation, which takes half of the time.

    An object without an importable name, such as a lambda, could be written but not read: it is an error.
    """
    import skops.io  # here, since importing it takes seconds: it imports all of scikit-learn, and torch
    from skops.io._utils import SaveContext, get_state

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        context = SaveContext(zip_file=archive)
        state = get_state(objects, context)
        context.clear_memo()
        about = {"protocol": context.protocol, "_skops_version": skops.__version__}
        archive.writestr("schema.json", json.dumps(state | about))
    written = data.getvalue()
    if not all(map(_is_there, _names_in(state))):  # some names are of skops alone, and are never resolved
        for name in skops.io.get_untrusted_types(data=written):
            pkgutil.resolve_name(name)
    return written


def _names_in(state: Any) -> set[str]:
    """The names of all classes and functions in a state of skops."""
    found, left = set[str](), [state]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if "__module__" in one and "__class__" in one:
                found.add(f"{one['__module__']}.{one['__class__']}")
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return found


def _is_there(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError, ValueError):
        return False
    return True


def read_archive(
    path: str | Path, trusted: Sequence[str] = ()
) -> tuple[dict[str, Any], Ensemble | None, Any]:
    """Read the facts, the ensemble or None, and the objects of a file.

    Parameters
    ----------
    path: the file to read.
    trusted: full names of types that may be built, besides ``TRUSTED``.

    Raises
    ------
    StoredModelError: the file is damaged, or holds a type that is not trusted.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read("gal.json"))
            models = archive.read("models.skops")
            there = set(archive.namelist())
            earlier = isinstance(content, dict) and content.get("format") == EARLIER
            files = {name: f"{name}.skops" for name in OWN}
            if earlier:
                files["stacker"] = format_4.STACKER_FILE
            own = {name: archive.read(file) for name, file in files.items() if file in there}
            if earlier:
                models = format_4.with_present_classes(models)
                own = {name: format_4.with_present_classes(data) for name, data in own.items()}
    except FileNotFoundError as error:
        raise StoredModelError(f"there is no file {str(path)!r}") from error
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise StoredModelError(f"{str(path)!r} is not a saved GAL model: {error}") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found not in (FORMAT, EARLIER):
        raise StoredModelError(
            f"{str(path)!r} has format {found!r}, this version of gal-learn reads {EARLIER} and {FORMAT}: "
            "learn again, or read it with the version that wrote it"
        )
    needed = {name: _types_in(path, data, trusted) for name, data in own.items()}
    wanted = _types_in(path, models, trusted)
    try:
        found = content["ensemble"]
        ensemble = None if found is None else ensemble_of(found)
        if ensemble is not None:
            ensemble = replace(ensemble, **{name: _build(own[name], needed[name]) for name in own})
        objects = _build(models, wanted)
        return content["facts"], ensemble, format_4.with_present_keys(objects) if earlier else objects
    except Exception as error:
        raise StoredModelError(
            f"{str(path)!r} cannot be read: {type(error).__name__}: {error}. It may be damaged, or written "
            "with other versions of gal-learn, scikit-learn or a model's own package."
        ) from error


def _build(data: bytes, trusted: list[str]) -> Any:
    """The objects in a file of skops."""
    import skops.io

    return reread(lambda: skops.io.loads(data, trusted=trusted))


def _types_in(path: str | Path, data: bytes, trusted: Sequence[str]) -> list[str]:
    """The types that skops must be allowed to build; an error where one of them is not trusted."""
    import skops.io

    try:
        needed: list[str] = reread(lambda: skops.io.get_untrusted_types(data=data))
    except Exception as error:
        raise StoredModelError(f"the models in {str(path)!r} cannot be read: {error}") from error
    unknown = sorted(name for name in needed if name not in trusted and not _is_trusted(name))
    if unknown:
        raise StoredModelError(
            f"{str(path)!r} holds objects of types that are not trusted: {', '.join(unknown)}. If you know "
            f"where the file comes from, load it with trusted={unknown}."
        )
    return needed


def _is_trusted(name: str) -> bool:
    """Whether this is a class of a trusted package; some of their functions run code that they are given."""
    if name in HARMLESS or not name.startswith(TRUSTED):
        return name in HARMLESS
    try:
        return isinstance(pkgutil.resolve_name(name), type)
    except (ImportError, AttributeError, ValueError):
        return False
