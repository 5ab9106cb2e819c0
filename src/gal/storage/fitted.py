"""Fitted local models and the label holder's ensemble, each as a file of its own.

An organization's file holds its model and its fitted models, never its view; the label holder's holds the
ensemble. Both are archives like a saved estimator, without code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gal.core.state import Ensemble
from gal.errors import StoredModelError
from gal.learner.organization import Models, Organization
from gal.storage.archive import read_archive, write_archive

ModelsByRound = Mapping[tuple[Any, int], Models]
"""By track and round."""
Places = dict[str, dict[str, list[int]]]
"""By organization, then by "track round": the places of its models in a list."""


def number_models(fitted: Mapping[str, ModelsByRound]) -> tuple[list[Any], Places]:
    """The distinct models, and the places of each round's models among them."""
    every = [model for by_round in fitted.values() for models in by_round.values() for model in models]
    distinct = list({id(model): model for model in every}.values())
    place = {id(model): index for index, model in enumerate(distinct)}
    places = {
        name: {
            f"{track} {round}": [place[id(model)] for model in models]
            for (track, round), models in by_round.items()
        }
        for name, by_round in fitted.items()
    }
    return distinct, places


def find_models(distinct: Sequence[Any], places: Mapping[str, list[int]]) -> dict[tuple[Any, int], Models]:
    """The models of one organization by track and round."""
    found = {}
    for key, numbers in places.items():
        track, round = key.split(" ")
        found[track, int(round)] = tuple(distinct[number] for number in numbers)
    return found


def organizations_as_objects(members: Mapping[str, Organization]) -> dict[str, Any]:
    """All organizations of an estimator, without their views, as objects of an archive."""
    distinct, places = number_models({name: one.models for name, one in members.items()})
    return {
        "models": distinct,
        "places": places,
        "templates": {name: one.model for name, one in members.items()},
    }


def organizations_from_objects(objects: Mapping[str, Any]) -> dict[str, Organization]:
    """Read them back; each prediction gives their views."""
    members = {}
    for name, places in objects["places"].items():
        members[name] = Organization(name, np.empty((0, 1)), objects["templates"][name])
        members[name].models.update(find_models(objects["models"], places))
    return members


def save_organization(organization: Organization, path: str | Path) -> None:
    """Write name, local model and fitted models of an organization, without its view.

    Parameters
    ----------
    organization: the organization after `gal.learn`.
    path: the file to write.
    """
    if not organization.models:
        raise StoredModelError(f"organization {organization.name!r} has fitted nothing yet")
    distinct, places = number_models({organization.name: organization.models})
    facts = {"class": "Organization", "name": organization.name}
    objects = {"models": distinct, "places": places, "template": organization.model}
    write_archive(path, facts, None, objects)


def load_organization(path: str | Path, view: Any = None, *, trusted: Sequence[str] = ()) -> Organization:
    """Read an organization that `save_organization` wrote.

    Parameters
    ----------
    path: the file to read.
    view: its view of the rows; None: each prediction brings a view.
    trusted: full names of types and functions outside of scikit-learn and GAL, such as a user's network.

    Raises
    ------
    StoredModelError: the file is damaged, or holds a type that is not trusted.
    """
    facts, _, objects = read_archive(path, trusted)
    if facts["class"] != "Organization":
        raise StoredModelError(f"{str(path)!r} holds a {facts['class']}, not an organization")
    name, held = facts["name"], np.empty((0, 1)) if view is None else view
    organization = Organization(name, held, objects["template"])
    organization.models.update(find_models(objects["models"], objects["places"][name]))
    return organization


def save_ensemble(ensemble: Ensemble, path: str | Path) -> None:
    """Write the ensemble of a label holder, with its stacker.

    Parameters
    ----------
    ensemble: the result of `gal.learn`.
    path: the file to write.
    """
    write_archive(path, {"class": "Ensemble"}, ensemble, {})


def load_ensemble(path: str | Path, *, trusted: Sequence[str] = ()) -> Ensemble:
    """Read an ensemble that `save_ensemble` wrote.

    Parameters
    ----------
    path: the file to read.
    trusted: full names of types outside of scikit-learn and GAL that a stacker may have.

    Raises
    ------
    StoredModelError: the file is damaged, or holds a type that is not trusted.
    """
    facts, ensemble, _ = read_archive(path, trusted)
    if facts["class"] != "Ensemble" or ensemble is None:
        raise StoredModelError(f"{str(path)!r} holds a {facts['class']}, not an ensemble")
    return ensemble


def save_models(path: str | Path, name: str, fitted: ModelsByRound) -> None:
    """Write the models of some rounds of an organization, without its view and its unfitted model.

    Parameters
    ----------
    path: the file to write.
    name: the organization.
    fitted: fitted models by track and round.
    """
    distinct, places = number_models({name: fitted})
    write_archive(path, {"class": "Models", "name": name}, None, {"models": distinct, "places": places})


def load_models(path: str | Path, *, trusted: Sequence[str] = ()) -> dict[tuple[Any, int], Models]:
    """Read models that `save_models` wrote, by track and round.

    Parameters
    ----------
    path: the file to read.
    trusted: full names of types outside of scikit-learn and GAL that the models may have.

    Raises
    ------
    StoredModelError: the file is damaged, or holds a type that is not trusted.
    """
    facts, _, objects = read_archive(path, trusted)
    if facts["class"] != "Models":
        raise StoredModelError(f"{str(path)!r} holds a {facts['class']}, not models of rounds")
    return find_models(objects["models"], objects["places"][facts["name"]])
