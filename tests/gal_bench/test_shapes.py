"""Cameras see what stands before them, and shapes become twelve organizations' views."""

from __future__ import annotations

import lzma
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gal_bench.data import shapes
from gal_bench.data.shapes import CAMERAS, SIZE, Points, cameras, load_shapes, render, shade, unpack_points
from known_files import make_known


def ball(rows: int, points: int = 200, seed: int = 0) -> Points:
    """Points of the unit ball, (rows, points, 3), flattened by a different factor in each row."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(rows, points, 3))
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    cloud = direction * rng.uniform(0, 1, (rows, points, 1)) ** (1 / 3)
    cloud[..., 0] *= np.linspace(0.3, 1.0, rows)[:, None]
    return cloud.astype(np.float32)


def turned(points: Points, degrees: float) -> Points:
    """About the z axis, counter-clockwise seen from above."""
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle), 0], [-np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    found: Points = (points.astype(np.float64) @ turn).astype(np.float32)
    return found


def seen_from(camera: int, across: float, upward: float, towards: float) -> NDArray[np.float32]:
    """The point (3,) that a camera has at this place."""
    point: NDArray[np.float32] = np.array([across, upward, towards], np.float32) @ cameras()[camera]
    return point


class TestRender:
    def test_turning_the_object_permutes_the_cameras(self) -> None:
        points = ball(5)
        still, moved = render(points), render(turned(points, 30))
        for before, after in zip(still, moved, strict=True):
            # a point on the border of two pixels may fall to either side
            assert np.mean(np.roll(before, 1, axis=1) == after) > 0.999
            assert np.mean(before == after) < 0.9

    def test_nearer_points_win_whatever_their_order(self) -> None:
        near, far = seen_from(3, 0.1, 0.2, 0.5), seen_from(3, 0.1, 0.2, -0.5)
        alone = render(near[None, None])[0][0, 3]
        assert alone.max() == round((0.5 + 1) * 31) + 1
        for pair in ((near, far), (far, near)):
            np.testing.assert_array_equal(render(np.stack(pair)[None])[0][0, 3], alone)


# --- from files to views

LABELS = {"train": np.arange(8) % 3, "test": np.arange(4) % 3}
POINTS = {"train": ball(8, 60, 1), "test": ball(4, 60, 2)}


def packed(points: Points) -> NDArray[np.uint8]:
    """As the files have them: 16 bits a coordinate, points ordered by x, differences of x."""
    steps = np.rint((points + 1.0) * shapes.STEPS).astype(np.uint16).transpose(0, 2, 1)
    steps = np.take_along_axis(steps, np.argsort(steps[:, :1], axis=2, kind="stable"), axis=2)
    steps[:, 0, 1:] = np.diff(steps[:, 0], axis=1)
    return np.stack([steps >> 8, steps & 0xFF]).astype(np.uint8)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with 8 training and 4 test shapes, which are the known ones."""
    files = {}
    for part in ("train", "test"):
        points, meta = BytesIO(), BytesIO()
        np.save(points, packed(POINTS[part]))
        np.savez(meta, label=LABELS[part])
        for file, content in ((f"points_{part}.npy.xz", points), (f"meta_{part}.npz", meta)):
            path = tmp_path / "modelnet40" / file
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(
                lzma.compress(content.getvalue()) if path.suffix == ".xz" else content.getvalue()
            )
            files[f"modelnet40/{file}"] = content.getvalue()
    make_known(monkeypatch, shapes.SOURCES, shapes.NAME, files)
    return tmp_path


def test_twelve_organizations_see_it_standardised_by_their_training_pixels(made: Path) -> None:
    found = load_shapes(made)
    assert list(found.train) == [f"camera {number}" for number in range(1, 13)]
    assert (found.label_holder, found.metric) == ("camera 1", "accuracy")
    np.testing.assert_array_equal(found.y_train, LABELS["train"])
    np.testing.assert_array_equal(found.y_test, LABELS["test"])
    train, test = (render(unpack_points(packed(POINTS[part]))) for part in ("train", "test"))
    for camera in range(CAMERAS):
        view = found.test[f"camera {camera + 1}"]
        assert (view.shape, view.dtype) == ((4, 3, SIZE, SIZE), np.float32)
        pairs = zip((*test, shade(test[0])), (*train, shade(train[0])), strict=True)
        for channel, (levels, by) in enumerate(pairs):
            expected = (levels[:, camera] - by[:, camera].mean()) / by[:, camera].std()
            np.testing.assert_allclose(view[:, channel], expected, atol=1e-4)
    np.testing.assert_array_equal(np.concatenate(list(found.test.values()), axis=1), found.whole_test)
    assert all(np.shares_memory(view, found.whole_train) for view in found.train.values())


@pytest.mark.slow
def test_the_whole_set(data_dir: Path) -> None:
    found = load_shapes(data_dir)
    assert found.whole_train.shape == (9843, 36, 32, 32)
    assert found.test["camera 12"].shape == (2468, 3, 32, 32)
    assert np.bincount(found.y_train)[[0, 1, 8]].tolist() == [626, 106, 889]
