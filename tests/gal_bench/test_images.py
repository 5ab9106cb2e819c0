"""Images become patches: each pixel goes to one organization, standardised by what that one trains on."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.errors import MissingDataError
from gal_bench.data.images import SOURCES, Patch, load_images, patch_layout
from gal_bench.data.sources import ViewSet
from known_files import make_known

Bytes = NDArray[np.uint8]
BATCHES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def idx(array: Bytes) -> bytes:
    """An idx file: type 8 (bytes), the number of dimensions, their lengths, the values."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    return header + array.tobytes()


def made_up(rows: int, seed: int, channels: int, size: int) -> tuple[Bytes, Bytes]:
    """Pixels (rows, channels, size, size), darker to the upper left, and labels (rows,)."""
    rng = np.random.default_rng(seed)
    light = np.add.outer(np.arange(size), np.arange(size)) * 2 + 100
    pixels = rng.integers(0, light, (rows, channels, size, size)).astype(np.uint8)
    return pixels, rng.integers(0, 10, rows).astype(np.uint8)


class Made:
    """A made-up set of 10 training and 3 test images, and the folder with its files."""

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        channels, size = (1, 28) if name == "MNIST" else (3, 32)
        self.name, self.folder = name, folder
        self.train, self.y_train = made_up(10, 1, channels, size)
        self.test, self.y_test = made_up(3, 2, channels, size)
        self.contents = self._mnist() if name == "MNIST" else self._cifar10()
        make_known(monkeypatch, SOURCES, name, self.contents)

    def _mnist(self) -> dict[str, bytes]:
        return {
            "mnist/train-images-idx3-ubyte.gz": idx(self.train[:, 0]),
            "mnist/train-labels-idx1-ubyte.gz": idx(self.y_train),
            "mnist/t10k-images-idx3-ubyte.gz": idx(self.test[:, 0]),
            "mnist/t10k-labels-idx1-ubyte.gz": idx(self.y_test),
        }

    def _cifar10(self) -> dict[str, bytes]:
        train, test = (
            np.column_stack([y, pixels.reshape(len(y), -1)])
            for y, pixels in ((self.y_train, self.train), (self.y_test, self.test))
        )
        parts = [*np.split(train, 5), test]
        return {
            f"cifar-10-batches-bin/{file}": part.tobytes() for file, part in zip(BATCHES, parts, strict=True)
        }

    def write(self, *, packed: bool = True, below: str = "") -> None:
        for file, content in self.contents.items():
            path = self.folder / below / file
            if path.suffix == ".gz":
                put(path if packed else path.with_suffix(""), gzip.compress(content) if packed else content)
            else:
                put(path, content)

    def patches(self, organizations: int) -> dict[str, Patch]:
        return patch_layout(organizations, *self.train.shape[2:])

    def load(self, organizations: int, *, masked: bool = False) -> ViewSet:
        return load_images(self.name, organizations, self.folder, masked=masked)


@pytest.fixture(params=["MNIST", "CIFAR10"])
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = Made(request.param, tmp_path, monkeypatch)
    made.write()
    return made


def standardised(pixels: Bytes, by: Bytes) -> NDArray[np.float64]:
    """The plain way, per channel."""
    over = (0, 2, 3)
    values: NDArray[np.float64] = (pixels - by.mean(over, keepdims=True)) / by.std(over, keepdims=True)
    return values


def cut(pixels: Bytes, patch: Patch) -> Bytes:
    return pixels[:, :, patch.top : patch.top + patch.height, patch.left : patch.left + patch.width]


LAYOUTS = {1: (1, 1), 2: (1, 2), 4: (2, 2), 8: (2, 4)}
"""Rows and columns of patches."""


class TestLayout:
    @pytest.mark.parametrize("organizations", list(LAYOUTS))
    @pytest.mark.parametrize("size", [28, 32])
    def test_patches_tile_the_image_row_by_row(self, organizations: int, size: int) -> None:
        owner = np.zeros((size, size), int)
        patches = patch_layout(organizations, size, size)
        assert list(patches) == [f"patch {number + 1}" for number in range(organizations)]
        for number, patch in enumerate(patches.values()):
            owner[patch.top : patch.top + patch.height, patch.left : patch.left + patch.width] += number + 1
        rows, columns = LAYOUTS[organizations]
        numbers = np.arange(1, organizations + 1).reshape(rows, columns)
        np.testing.assert_array_equal(owner, np.kron(numbers, np.ones((size // rows, size // columns), int)))


@pytest.mark.parametrize("organizations", list(LAYOUTS))
class TestCropped:
    def test_every_pixel_is_in_its_view(self, made: Made, organizations: int) -> None:
        found = made.load(organizations)
        for name, patch in made.patches(organizations).items():
            own = cut(made.train, patch)
            for views, pixels in ((found.train, own), (found.test, cut(made.test, patch))):
                top = (views[name].shape[2] - patch.height) // 2
                left = (views[name].shape[3] - patch.width) // 2
                inside = cut(views[name], Patch(top, left, patch.height, patch.width))
                np.testing.assert_allclose(inside, standardised(pixels, own), atol=1e-5)


class TestStandardisation:
    def test_training_pixels_alone_decide(self, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        before = made.load(2)
        made.test[:] = 255 - made.test
        made.contents = made._mnist() if made.name == "MNIST" else made._cifar10()
        make_known(monkeypatch, SOURCES, made.name, made.contents)
        made.write()
        after = made.load(2)
        np.testing.assert_array_equal(before.train["patch 2"], after.train["patch 2"])
        np.testing.assert_array_equal(before.whole_train, after.whole_train)
        assert not np.array_equal(before.test["patch 2"], after.test["patch 2"])


class TestReal:
    def test_mnist(self, data_dir: Path) -> None:
        found = load_images("MNIST", 1, data_dir)
        assert np.bincount(found.y_train).tolist() == [
            *(5923, 6742, 5958, 6131, 5842),
            *(5421, 5918, 6265, 5851, 5949),
        ]
        assert found.test["patch 1"].shape == (10_000, 1, 32, 32)
        assert found.whole_train.shape == (60_000, 1, 32, 32)
        corner = found.train["patch 1"][:, 0, 2:4, 2]  # dark in every image, so there is one value
        assert np.unique(corner).size == 1
        assert found.y_train[:5].tolist() == [5, 0, 4, 1, 9]

    @pytest.mark.slow
    def test_cifar10(self, data_dir: Path) -> None:
        try:
            found = load_images("CIFAR10", 8, data_dir)
        except MissingDataError:
            pytest.skip("CIFAR10 is not in the data folder that GAL_DATA names")
        assert np.bincount(found.y_train).tolist() == [5000] * 10
        assert np.bincount(found.y_test).tolist() == [1000] * 10
        assert found.train["patch 8"].shape == (50_000, 3, 16, 8)
        assert found.whole_test.shape == (10_000, 3, 32, 32)
        assert found.y_train[0] == 6, "a frog"
