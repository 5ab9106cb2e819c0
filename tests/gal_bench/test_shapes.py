"""Cameras see what stands before them, and shapes become twelve organizations' views."""

from __future__ import annotations

import hashlib
import lzma
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.errors import InvalidInputError, InvalidOptionError, MissingDataError
from gal_bench.data import rendering, shapes
from gal_bench.data.rendering import CAMERAS, SIZE, Points, cameras, render, shade
from gal_bench.data.shapes import SOURCES, load_shapes, pack_points, unpack_points
from gal_bench.data.sources import Source
from gal_bench.data.view_sets import ViewSet

CLASSES = ("chair", "lamp", "sofa")


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


class TestCameras:
    def test_axes_are_orthonormal_and_right_handed(self) -> None:
        for axes in cameras().astype(np.float64):
            np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-6)
            assert np.linalg.det(axes) == pytest.approx(1)

    def test_where_they_stand(self) -> None:
        towards = cameras()[:, 2]
        np.testing.assert_allclose(np.rad2deg(np.arcsin(towards[:, 2])), 30, atol=1e-4)
        around = np.rad2deg(np.arctan2(towards[:, 1], towards[:, 0])) % 360
        np.testing.assert_allclose(around, np.arange(12) * 30, atol=1e-4)
        assert np.all(cameras()[:, 0, 2] == 0)  # held level
        assert np.all(cameras()[:, 1, 2] > 0)  # and upright


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
        alone = render(near[None, None]).depth[0, 3]
        assert alone.max() == round((0.5 + 1) * 31) + 1
        for pair in ((near, far), (far, near)):
            np.testing.assert_array_equal(render(np.stack(pair)[None]).depth[0, 3], alone)

    def test_nearer_is_larger(self) -> None:
        levels = [render(seen_from(0, 0, 0, z)[None, None]).depth[0, 0].max() for z in (-1, -0.5, 0, 0.5, 1)]
        assert levels == sorted(set(levels))
        assert (levels[0], levels[-1]) == (1, rendering.DEPTH_LEVELS)

    @pytest.mark.parametrize(
        ("across", "upward", "rows", "columns"),
        [
            (0, 0, (15, 16), (15, 16)),
            (0.5, 0, (15, 16), (23, 24)),  # to the right
            (0, 0.5, (7, 8), (15, 16)),  # upward
            (-0.99, 0, (15, 16), (0,)),  # at the edge
            (0, -0.99, (31,), (15, 16)),
        ],
    )
    def test_a_point_covers_the_pixels_around_it(
        self, across: float, upward: float, rows: tuple[int, ...], columns: tuple[int, ...]
    ) -> None:
        depth = render(seen_from(5, across + 1e-3, upward - 1e-3, 0.3)[None, None]).depth[0, 5]
        expected = np.zeros((SIZE, SIZE), bool)
        expected[np.ix_(rows, columns)] = True
        np.testing.assert_array_equal(depth > 0, expected)

    def test_background_is_empty(self) -> None:
        points = ball(3) * np.float32(0.5)
        pictures = render(points)
        row, column = np.indices((SIZE, SIZE)) - (SIZE - 1) / 2
        outside = np.hypot(row, column) > SIZE / 4 + 2  # half a unit, and a splat
        for channel in (*pictures, shade(pictures.depth)):
            assert not channel[:, :, outside].any()
            np.testing.assert_array_equal(channel > 0, pictures.depth > 0)
        assert (pictures.depth > 0).any(axis=(2, 3)).all()

    def test_density_counts_points_relative_to_all(self) -> None:
        points = ball(2, 1024)
        often = np.concatenate([points, points], axis=1)
        np.testing.assert_array_equal(render(points).density, render(often).density)
        heap = np.concatenate([points, np.zeros_like(points)], axis=1)
        assert render(heap).density.max() == rendering.DENSITY_LEVELS
        assert render(heap).density[:, :, 16, 16].min() == rendering.DENSITY_LEVELS

    def test_chunks_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        points = ball(7)
        at_once = render(points)
        monkeypatch.setattr(rendering, "CHUNK", 3)
        for first, second in zip(at_once, render(points), strict=True):
            np.testing.assert_array_equal(first, second)


class TestShade:
    def plane(self, right: float, down: float) -> NDArray[np.uint8]:
        """The shading of a plane that gets nearer by so many levels a pixel, to the right and downward."""
        row, column = np.indices((SIZE, SIZE))
        depth = (31 + right * (column - 15) + down * (row - 15)).clip(1, 63).astype(np.uint8)
        return shade(depth[None, None])[0, 0, 14:17, 14:17]

    def test_a_plane_is_shaded_by_its_normal(self) -> None:
        light = np.array(rendering.LIGHT) / np.linalg.norm(rendering.LIGHT)
        for right, down in ((0, 0), (1, 0), (-1, 0), (0, 1), (2, -1)):
            slope = np.array([right, down]) * SIZE / (rendering.DEPTH_LEVELS - 1)
            normal = np.array([-slope[0], slope[1], 1]) / np.sqrt(1 + (slope**2).sum())
            expected = 64 + 191 * max(normal @ light, 0)
            np.testing.assert_allclose(self.plane(right, down), expected, atol=1)

    def test_left_and_upper_sides_are_brighter(self) -> None:
        assert self.plane(1, 0).mean() > self.plane(0, 0).mean() > self.plane(-1, 0).mean()
        assert self.plane(0, 1).mean() > self.plane(0, -1).mean()

    def test_the_background_is_no_slope(self) -> None:
        depth = np.zeros((1, 1, SIZE, SIZE), np.uint8)
        depth[0, 0, 10:20, 10:20] = 40
        inside = shade(depth)[0, 0, 10:20, 10:20]
        assert np.unique(inside).size == 1
        assert shade(depth).sum() == inside.sum()


class TestPacking:
    def test_round_trip_is_the_same_points(self) -> None:
        points = ball(4, 50)
        packed = pack_points(points)
        assert packed.shape == (2, 4, 3, 50)
        assert packed.dtype == np.uint8
        found = unpack_points(packed)
        assert found.dtype == np.float32
        by_x = np.take_along_axis(points, np.argsort(points[..., :1], axis=1), axis=1)
        np.testing.assert_allclose(found, by_x, atol=2e-5)
        np.testing.assert_array_equal(pack_points(found), packed)

    def test_the_corners_of_the_range(self) -> None:
        points = np.array([[[-1, -1, -1], [1, 1, 1]]], np.float32)
        np.testing.assert_allclose(unpack_points(pack_points(points)), points, atol=2e-5)


def saved(array: NDArray[Any]) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


class Made:
    """A made-up set of 8 training and 4 test shapes in a folder; parts of it can be overwritten."""

    def __init__(self, folder: Path, name: str = "ShapeNet55") -> None:
        self.root, self.name = folder, name
        self.folder = folder / name.lower()
        self.folder.mkdir(parents=True)
        self.points = {"train": ball(8, 60, 1), "test": ball(4, 60, 2)}
        self.labels = {"train": np.arange(8) % 3, "test": np.arange(4) % 3}
        for part in ("train", "test"):
            self.put_points(part, self.points[part])
            self.put_meta(part, label=self.labels[part], classes=np.array(CLASSES))

    def put_points(self, part: str, points: NDArray[Any]) -> None:
        (self.folder / f"points_{part}.npy").write_bytes(saved(points))

    def pack(self) -> None:
        for part, points in self.points.items():
            (self.folder / f"points_{part}.npy").unlink()
            content = lzma.compress(saved(pack_points(points)))
            (self.folder / f"points_{part}.npy.xz").write_bytes(content)

    def put_meta(self, part: str, **arrays: Any) -> None:
        np.savez(self.folder / f"meta_{part}.npz", **arrays)

    def load(self, cache_dir: Path | None = None) -> ViewSet:
        return load_shapes(self.name, self.root, cache_dir=cache_dir)

    def make_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on the files are those of the set, with known checksums."""
        files = {}
        for path in sorted(self.folder.iterdir()):
            content = path.read_bytes()
            content = lzma.decompress(content) if path.suffix == ".xz" else content
            files[f"{self.folder.name}/{path.name}"] = hashlib.sha256(content).hexdigest()
        monkeypatch.setitem(SOURCES, self.name, Source(files, "somewhere"))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


class TestViews:
    def test_twelve_organizations(self, made: Made) -> None:
        found = made.load()
        assert list(found.train) == [f"camera {number}" for number in range(1, 13)]
        assert (found.label_holder, found.metric, found.class_names) == ("camera 1", "accuracy", CLASSES)
        assert found.patches is None
        np.testing.assert_array_equal(found.y_train, made.labels["train"])
        np.testing.assert_array_equal(found.y_test, made.labels["test"])
        for view in found.test.values():
            assert (view.shape, view.dtype) == ((4, 3, SIZE, SIZE), np.float32)

    def test_channels_by_camera_and_as_a_whole(self, made: Made) -> None:
        found = made.load()
        train, test = (render(made.points[part]) for part in ("train", "test"))
        for camera in range(CAMERAS):
            view = found.test[f"camera {camera + 1}"]
            pairs = zip((*test, shade(test.depth)), (*train, shade(train.depth)), strict=True)
            for channel, (levels, by) in enumerate(pairs):
                own = by[:, camera]
                expected = (levels[:, camera] - own.mean()) / own.std()
                np.testing.assert_allclose(view[:, channel], expected, atol=1e-4)
        assert found.whole_train.shape == (8, 3 * CAMERAS, SIZE, SIZE)
        np.testing.assert_array_equal(np.concatenate(list(found.test.values()), axis=1), found.whole_test)

    def test_views_share_the_memory_of_the_whole(self, made: Made) -> None:
        found = made.load()
        assert all(np.shares_memory(view, found.whole_train) for view in found.train.values())

    def test_training_pixels_alone_decide(self, made: Made) -> None:
        before = made.load()
        made.put_points("test", made.points["test"] * np.float32(0.3))
        after = made.load()
        np.testing.assert_array_equal(before.whole_train, after.whole_train)
        assert not np.array_equal(before.whole_test, after.whole_test)

    def test_packed_is_the_same(self, made: Made) -> None:
        plain = made.load()
        made.pack()
        packed = made.load()
        alike = np.isclose(plain.whole_train, packed.whole_train, atol=0.05)
        assert alike.mean() > 0.99  # coordinates were rounded


class TestCache:
    def test_is_read_instead_of_rendering(
        self, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = made.load(tmp_path / "cache")
        monkeypatch.setattr(shapes, "render", lambda points: pytest.fail("rendered again"))
        second = made.load(tmp_path / "cache")
        np.testing.assert_array_equal(first.whole_train, second.whole_train)
        np.testing.assert_array_equal(first.whole_test, second.whole_test)
        np.testing.assert_array_equal(first.y_test, second.y_test)
        assert first.class_names == second.class_names
        assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".npz"]

    def test_other_parameters_or_files_have_another_cache(
        self, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = tmp_path / "cache"
        made.load(cache)
        made.put_points("test", made.points["test"] * np.float32(0.3))
        np.testing.assert_array_equal(made.load(cache).whole_test, made.load().whole_test)
        assert len(list(cache.iterdir())) == 2
        monkeypatch.setattr(rendering, "ELEVATION", 10.0)
        np.testing.assert_array_equal(made.load(cache).whole_test, made.load().whole_test)
        assert len(list(cache.iterdir())) == 3

    def test_a_set_with_known_checksums_needs_its_files_no_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = Made(tmp_path, "ModelNet40")
        made.pack()
        made.make_known(monkeypatch)
        first = made.load(tmp_path / "cache")
        monkeypatch.delenv("GAL_DATA", raising=False)
        second = load_shapes("ModelNet40", cache_dir=tmp_path / "cache")
        np.testing.assert_array_equal(first.whole_train, second.whole_train)

    @pytest.mark.parametrize("kept", [b"", b"no zip file", 0.5])
    def test_a_broken_one_says_so(self, kept: bytes | float, made: Made, tmp_path: Path) -> None:
        made.load(tmp_path / "cache")
        (path,) = (tmp_path / "cache").iterdir()
        whole = path.read_bytes()
        path.write_bytes(kept if isinstance(kept, bytes) else whole[: int(kept * len(whole))])
        with pytest.raises(InvalidInputError, match=rf"{path.name} is not a whole cache .* delete it"):
            made.load(tmp_path / "cache")


class TestFiles:
    def test_unknown_name(self) -> None:
        with pytest.raises(InvalidOptionError, match="one of ModelNet40, ShapeNet55, got 'ModelNet10'"):
            load_shapes("ModelNet10")

    @pytest.mark.parametrize("name", list(SOURCES))
    def test_missing_folder_says_what_to_put_where(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GAL_DATA", raising=False)
        with pytest.raises(MissingDataError) as caught:
            load_shapes(name)
        for part in (name, "--data-dir", "GAL_DATA", "https://", *SOURCES[name].files):
            assert part in str(caught.value)

    def test_missing_file_is_named(self, made: Made) -> None:
        (made.folder / "points_test.npy").unlink()
        with pytest.raises(MissingDataError, match=r"points_test\.npy, which is not there"):
            made.load()

    @pytest.mark.parametrize("file", ["points_train.npy.xz", "meta_test.npz"])
    def test_wrong_checksum(self, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = Made(tmp_path, "ModelNet40")
        made.pack()
        made.make_known(monkeypatch)
        content = saved(pack_points(ball(8, 60, 9)))
        (made.folder / file).write_bytes(lzma.compress(content) if file.endswith(".xz") else content)
        with pytest.raises(InvalidInputError, match=rf"{file} .*expected sha256 .*, got sha256"):
            made.load()

    @pytest.mark.parametrize(
        ("points", "message"),
        [
            (np.zeros((8, 60, 2), np.float32), r"shape \(n, points, 3\).* got float32 of shape \(8, 60, 2\)"),
            (np.zeros((8, 60, 3), np.int32), r"got int32 of shape \(8, 60, 3\)"),
            (np.zeros((8, 0, 3), np.float32), r"at least one shape of one point, got shape \(8, 0, 3\)"),
            (
                np.full((8, 60, 3), np.nan, np.float32),
                r"finite points in the unit sphere.* got a norm of nan",
            ),
            (np.full((8, 60, 3), np.inf, np.float32), r"got a norm of inf"),
            (np.full((8, 60, 3), 3e30, np.float32), r"got a norm of inf"),
            (np.full((8, 60, 3), 1, np.float32), r"centre and scale every shape, got a norm of 1\.732"),
            (ball(5), r"expected 8 shapes, as meta_train\.npz has labels, got 5"),
            (np.array([None, "object"]), "expected a file that numpy wrote"),
        ],
    )
    def test_points_that_cannot_be(self, points: NDArray[Any], message: str, made: Made) -> None:
        made.put_points("train", points)
        with pytest.raises(InvalidInputError, match=message):
            made.load()

    @pytest.mark.parametrize(
        ("meta", "message"),
        [
            ({"label": np.arange(8) % 3}, "expected label and classes, got no classes"),
            ({"label": np.arange(8), "classes": CLASSES}, r"labels 0 to 2 for 3 classes, got 0 to 7"),
            ({"label": np.arange(8) % 3 - 1, "classes": CLASSES}, "got -1 to 1"),
            ({"label": np.zeros(8), "classes": CLASSES}, r"integer labels of shape \(n,\), got float64"),
            ({"label": np.zeros((8, 1), int), "classes": CLASSES}, r"got int64 of shape \(8, 1\)"),
            (
                {"label": np.zeros(8, int), "classes": ("a", "b")},
                r"classes a, b as in training, got classes chair",
            ),
        ],
    )
    def test_labels_that_cannot_be(self, meta: dict[str, Any], message: str, made: Made) -> None:
        made.put_meta("train", **meta)
        with pytest.raises(InvalidInputError, match=message):
            made.load()

    @pytest.mark.parametrize("file", ["points_train.npy", "meta_train.npz"])
    @pytest.mark.parametrize("content", [b"", b"<html>not found</html>", saved(np.arange(3))[:-4]])
    def test_no_numpy_file(self, file: str, content: bytes, made: Made) -> None:
        (made.folder / file).write_bytes(content)
        with pytest.raises(InvalidInputError, match=rf"{file} .*expected a file that numpy wrote"):
            made.load()

    def test_one_array_in_place_of_several(self, made: Made) -> None:
        (made.folder / "meta_train.npz").write_bytes(saved(np.arange(8)))
        with pytest.raises(InvalidInputError, match="several arrays in place of one, or one"):
            made.load()

    def test_half_a_download(self, made: Made) -> None:
        made.pack()
        path = made.folder / "points_train.npy.xz"
        path.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(InvalidInputError, match="expected a file that numpy wrote"):
            made.load()


@pytest.fixture(scope="module")
def modelnet_test() -> tuple[Points, NDArray[np.int64]]:
    """The 2,468 official test shapes, as points, with their labels."""
    folder = os.environ.get("GAL_DATA")
    if not folder:
        pytest.skip("GAL_DATA is not set: it names the folder with the data sets")
    try:
        at_points, at_meta = shapes._paths("ModelNet40", Path(folder), "test")
    except MissingDataError:
        pytest.skip("ModelNet40 is not in the data folder that GAL_DATA names")
    return shapes._points("ModelNet40", at_points), shapes._labels("ModelNet40", at_meta)[0]


class TestReal:
    def test_points_and_labels(self, modelnet_test: tuple[Points, NDArray[np.int64]]) -> None:
        points, y = modelnet_test
        assert points.shape == (2468, 1024, 3)
        np.testing.assert_allclose(points.mean(axis=1), 0, atol=1e-4)
        assert np.unique(y).size == 40
        assert np.bincount(y).max() == 100

    def test_one_camera_tells_shapes_apart(self, modelnet_test: tuple[Points, NDArray[np.int64]]) -> None:
        """The nearest of 1,000 shapes has the same class far more often than the commonest class (4 %)."""
        points, y = modelnet_test
        rows = np.random.default_rng(0).permutation(len(points))[:1300]
        pictures = render(points[rows])
        depth = pictures.depth[:, 0].reshape(len(rows), -1).astype(np.float32)
        known, asked = depth[:1000], depth[1000:]
        distance = (known**2).sum(1) - 2 * asked @ known.T
        nearest = y[rows[:1000]][distance.argmin(axis=1)]
        assert np.mean(nearest == y[rows[1000:]]) > 0.45

    @pytest.mark.slow
    def test_the_whole_set(self, modelnet_test: tuple[Points, NDArray[np.int64]]) -> None:
        found = load_shapes("ModelNet40")
        assert found.whole_train.shape == (9843, 36, 32, 32)
        assert found.test["camera 12"].shape == (2468, 3, 32, 32)
        assert np.bincount(found.y_train)[[0, 1, 8]].tolist() == [626, 106, 889]
        assert (found.class_names[0], found.class_names[8]) == ("airplane", "chair")
