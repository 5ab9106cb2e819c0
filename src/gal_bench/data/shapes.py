"""Three-dimensional shapes as views: twelve cameras around an object, each of them an organization.

``load_shapes("ModelNet40")`` reads point clouds from ``modelnet40/`` below the data folder
(``data_dir``, else the environment's ``GAL_DATA``) and renders them; ``gal_bench.data.rendering`` says
how. The split is the official one, 9,843 training and 2,468 test shapes; **the paper used 3,163 and 800
of them, and does not say which**, so its figures are not quite comparable.
``load_shapes("ShapeNet55")`` is for those who have ShapeNet, whose licence keeps it from being passed
on: it was tested on made-up shapes only, **the real set was not run by us**.

Files, for ``train`` and ``test`` each, in ``modelnet40/`` or ``shapenet55/``:

- ``points_train.npy``: (n, points, 3), float32: x, y, z of any number of points, z up, every shape centred
  and
  scaled into the unit sphere; or ``points_train.npy.xz``: the same packed by ``pack_points`` to a third, as
  ``lzma`` compresses it.
- ``meta_train.npz``: ``label`` (n,), codes 0, 1, ... and ``classes``, the names that they stand for.

ModelNet40's files are checked by their checksums. Of ShapeNet55 none are known: shape, range and labels are
checked. This module needs numpy alone.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError, InvalidOptionError
from gal_bench.data import rendering
from gal_bench.data.images import View, count_levels, standard_values, standardised_pixels
from gal_bench.data.rendering import Points, Rendered, render, shade
from gal_bench.data.sources import Source
from gal_bench.data.view_sets import ViewSet

CHANNELS = 3
"""Of a camera: depth, density, shading."""
FORMAT = 1
"""Counts up when the rendering changes without a change in its parameters:
older caches are then left alone.
"""
STEPS = 32767.5
"""Of a packed coordinate, in a unit."""
OUTSIDE = 1.001
"""A norm that is not rounding any more."""
BROKEN = (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
"""What reading a file raises that is not what it should be."""

MODELNET40_FILES = {
    "modelnet40/points_train.npy.xz": "9ab155469d741e31ac391829890ef1eabf9180b441489aa1a905057dc154cc08",
    "modelnet40/meta_train.npz": "25886533624306d0ae7409eaead3b0e0c93c3388e852102ff76712f17f7ffefc",
    "modelnet40/points_test.npy.xz": "a28d426a38ae98ef1c43bbc568a127482a477d61e5dc4c6c4eb48cedeadd97cf",
    "modelnet40/meta_test.npz": "34e945c47a2f8544312eab52300b0ecf9abe8e9e4ed54dc064fc9a5e4b19fba2",
}
UNKNOWN = ""
"""Instead of a checksum."""
SHAPENET55_FILES = {
    f"shapenet55/{file}": UNKNOWN
    for file in ("points_train.npy", "meta_train.npz", "points_test.npy", "meta_test.npz")
}
SOURCES = {
    "ModelNet40": Source(
        MODELNET40_FILES,
        "https://modelnet.cs.princeton.edu (Wu et al. 2015; for research), 1024 points a shape as in "
        "https://github.com/prasadsawant5/PointNet, packed as gal_bench.data.shapes says",
    ),
    "ShapeNet55": Source(
        SHAPENET55_FILES,
        "https://shapenet.org (Chang et al. 2015; for research, after registration), laid out as "
        "gal_bench.data.shapes says",
    ),
}


class Part(NamedTuple):
    """The training or the test shapes, rendered."""

    pictures: Rendered
    y: NDArray[np.int64]
    """Shape (n,): codes of the classes."""
    class_names: tuple[str, ...]


def load_shapes(
    name: str, data_dir: Path | str | None = None, *, cache_dir: Path | str | None = None
) -> ViewSet:
    """ModelNet40 or ShapeNet55, seen by the organizations "camera 1" (the label holder) to "camera 12".

    ModelNet40's rows are the official 9,843 and 2,468 (the paper's: 3,163 and 800);
    the real ShapeNet55 was not run.

    A view is float32, (n, 3, 32, 32): depth, density and shading, each standardised with mean and deviation
    of the camera's own training pixels. The whole, for who holds everything, has all views' channels stacked:
    (n, 36, 32, 32); the views are slices of it, without memory of their own.

    ``cache_dir`` keeps what was rendered in one file (ModelNet40: 55 MB), with which ModelNet40 needs the
    data folder no more. Rendering is quick: the cache saves seconds, not minutes.
    """
    if name not in SOURCES:
        raise InvalidOptionError(f"set of shapes must be one of {', '.join(SOURCES)}, got {name!r}")
    data_dir = None if data_dir is None else Path(data_dir)
    train, test = _parts(name, data_dir, None if cache_dir is None else Path(cache_dir))
    pixels = _stack(train.pictures)
    values = standard_values(count_levels(pixels))
    whole_train = standardised_pixels(pixels, values, pixels.shape[2:])
    whole_test = standardised_pixels(_stack(test.pictures), values, pixels.shape[2:])
    return ViewSet(
        name,
        _by_camera(whole_train),
        train.y,
        _by_camera(whole_test),
        test.y,
        "accuracy",
        whole_train,
        whole_test,
        train.class_names,
    )


def pack_points(points: NDArray[Any]) -> NDArray[np.uint8]:
    """Points (n, points, 3) of the unit sphere as bytes (2, n, 3, points): a
    third of float32's size under xz.

    Coordinates are rounded to 16 bits (by at most 0.000016) and the points of a shape ordered by x, of which
    the differences are kept; high bytes come first, then all low ones.
    """
    steps = np.rint((np.clip(points, -1.0, 1.0) + 1.0) * STEPS).astype(np.uint16).transpose(0, 2, 1)
    steps = np.take_along_axis(steps, np.argsort(steps[:, :1], axis=2, kind="stable"), axis=2)
    steps[:, 0, 1:] = np.diff(steps[:, 0], axis=1)
    return np.stack([steps >> 8, steps & 0xFF]).astype(np.uint8)


def unpack_points(packed: NDArray[np.uint8]) -> Points:
    """What ``pack_points`` packed: (n, points, 3), rounded and ordered by x."""
    steps = (packed[0].astype(np.uint16) << 8) | packed[1]
    steps[:, 0] = np.cumsum(steps[:, 0], axis=1, dtype=np.uint16)
    points = steps.astype(np.float32) / np.float32(STEPS) - np.float32(1)
    return np.ascontiguousarray(points.transpose(0, 2, 1))


# --- from pictures to views


def _stack(pictures: Rendered) -> NDArray[np.uint8]:
    """All cameras' channels: (n, cameras * 3, size, size)."""
    channels = np.stack([pictures.depth, pictures.density, shade(pictures.depth)], axis=2)
    return channels.reshape(len(channels), -1, *channels.shape[3:])


def _by_camera(whole: View) -> dict[str, View]:
    return {
        f"camera {camera + 1}": whole[:, CHANNELS * camera : CHANNELS * (camera + 1)]
        for camera in range(rendering.CAMERAS)
    }


# --- the cache


def _parts(name: str, data_dir: Path | None, cache_dir: Path | None) -> tuple[Part, Part]:
    if cache_dir is None:
        return _rendered(name, data_dir)
    path = cache_dir / f"{name.lower()}_views_{_key(name, data_dir)}.npz"
    if path.is_file():
        return _cached(path, "train"), _cached(path, "test")
    train, test = _rendered(name, data_dir)
    _keep(path, train, test)
    return train, test


def _key(name: str, data_dir: Path | None) -> str:
    """A digest of all that the rendered pictures depend on."""
    parameters = {
        "format": FORMAT,
        "cameras": rendering.CAMERAS,
        "size": rendering.SIZE,
        "elevation": rendering.ELEVATION,
        "depth": rendering.DEPTH_LEVELS,
        "density": (rendering.DENSITY_LEVELS, rendering.FULL_DENSITY),
        "files": _checksums(name, data_dir),
    }
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:12]


def _checksums(name: str, data_dir: Path | None) -> list[str]:
    """The known ones, so that the files may be absent; else of the files as they are."""
    known = SOURCES[name].files
    if UNKNOWN not in known.values():
        return list(known.values())
    checksums = []
    for part in ("train", "test"):
        for path in _paths(name, data_dir, part):
            with path.open("rb") as file:
                checksums.append(hashlib.file_digest(file, "sha256").hexdigest())
    return checksums


def _keep(path: Path, train: Part, test: Part) -> None:
    """Written aside and renamed, so that a broken run leaves no half cache."""
    arrays: dict[str, Any] = {"classes": np.array(train.class_names)}
    for prefix, part in (("train", train), ("test", test)):
        arrays[f"{prefix}_label"] = part.y
        arrays[f"{prefix}_depth"] = part.pictures.depth
        arrays[f"{prefix}_density"] = part.pictures.density
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.stem}.{os.getpid()}.part.npz")
    try:
        np.savez_compressed(aside, **arrays)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _cached(path: Path, prefix: str) -> Part:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            pictures = Rendered(kept[f"{prefix}_depth"], kept[f"{prefix}_density"])
            return Part(pictures, kept[f"{prefix}_label"], tuple(str(one) for one in kept["classes"]))
    except (KeyError, *BROKEN) as error:
        raise InvalidInputError(
            f"{path} is not a whole cache of rendered views ({error}); delete it, and it is rendered again"
        ) from error


# --- files


def _rendered(name: str, data_dir: Path | None) -> tuple[Part, Part]:
    train, test = (_read(name, data_dir, part) for part in ("train", "test"))
    if train.class_names != test.class_names:
        path = _paths(name, data_dir, "test")[1]
        expected, came = (f"classes {', '.join(part.class_names)}" for part in (train, test))
        raise SOURCES[name].wrong(name, path, f"{expected} as in training", came)
    return train, test


def _read(name: str, data_dir: Path | None, part: str) -> Part:
    at_points, at_meta = _paths(name, data_dir, part)
    y, class_names = _labels(name, at_meta)
    points = _points(name, at_points)
    if len(points) != len(y):
        raise SOURCES[name].wrong(
            name, at_points, f"{len(y)} shapes, as {at_meta.name} has labels", f"{len(points)}"
        )
    return Part(render(points), y, class_names)


def _paths(name: str, data_dir: Path | None, part: str) -> tuple[Path, Path]:
    """Of the points, in either packing, and of their labels."""
    folder, source = name.lower(), SOURCES[name]
    packings = [f"{folder}/points_{part}.npy", f"{folder}/points_{part}.npy.xz"]
    packings.sort(key=lambda file: file not in source.files)  # the first is named if none is there
    return source.find(name, data_dir, *packings), source.find(name, data_dir, f"{folder}/meta_{part}.npz")


def _points(name: str, path: Path) -> Points:
    array = _array(name, path)
    if array.dtype == np.uint8 and array.ndim == 4 and array.shape[::2] == (2, 3):
        points = unpack_points(array)
    elif np.issubdtype(array.dtype, np.floating) and array.ndim == 3 and array.shape[2] == 3:
        points = array.astype(np.float32, copy=False)
    else:
        expected = "float32 of shape (n, points, 3) or packed bytes of shape (2, n, 3, points)"
        raise SOURCES[name].wrong(name, path, expected, f"{array.dtype} of shape {array.shape}")
    if points.size == 0:
        raise SOURCES[name].wrong(name, path, "at least one shape of one point", f"shape {points.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.einsum("npx,npx->np", points, points)
    if not np.all(squared <= OUTSIDE**2):  # NaN fails, too
        expected = "finite points in the unit sphere: centre and scale every shape"
        raise SOURCES[name].wrong(name, path, expected, f"a norm of {np.sqrt(squared.max()):.4g}")
    return points


def _labels(name: str, path: Path) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    meta = _array(name, path)
    missing = {"label", "classes"} - set(meta)
    if missing:
        raise SOURCES[name].wrong(name, path, "label and classes", f"no {' and no '.join(sorted(missing))}")
    label, classes = meta["label"], tuple(str(one) for one in meta["classes"])
    if label.ndim != 1 or not np.issubdtype(label.dtype, np.integer):
        expected = "integer labels of shape (n,)"
        raise SOURCES[name].wrong(name, path, expected, f"{label.dtype} of shape {label.shape}")
    if len(label) and not 0 <= label.min() <= label.max() < len(classes):
        expected = f"labels 0 to {len(classes) - 1} for {len(classes)} classes"
        raise SOURCES[name].wrong(name, path, expected, f"{label.min()} to {label.max()}")
    return label.astype(np.int64), classes


def _array(name: str, path: Path) -> Any:
    """What numpy wrote to a file, packed or not: an array, or several by name; never pickled objects."""
    try:
        with _open(name, path) as file:
            content = np.load(file, allow_pickle=False)
            several = path.suffix == ".npz"
            if isinstance(content, np.ndarray) == several:
                raise ValueError("several arrays in place of one, or one in place of several")
            return dict(content) if several else content
    except BROKEN as error:
        if isinstance(error, InvalidInputError):  # a checksum: it says so itself
            raise
        raise SOURCES[name].wrong(name, path, "a file that numpy wrote", str(error)) from error


def _open(name: str, path: Path) -> Any:
    if SOURCES[name].checksum(path) != UNKNOWN:
        return BytesIO(SOURCES[name].read(name, path))
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")
