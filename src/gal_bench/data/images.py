"""Images as views: MNIST and CIFAR-10, cut into one patch for each organization.

``load_images`` reads ``mnist/*.gz`` (or the same files unpacked), or the binary version of CIFAR-10
(``cifar-10-batches-bin/*.bin`` or ``*.bin.xz``, also in ``cifar10/``), below the data folder: ``data_dir``,
else ``GAL_DATA``. The patches are the paper's: 2 organizations hold the left and the right half, 4 the
quarters, 8 two rows of four, numbered row by row from the label holder's, the upper left one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidOptionError
from gal_bench.data.sources import Source, ViewSet

Folder = Path | str | None
Pixels = NDArray[np.uint8]
"""Shape (n, channels, height, width): levels 0 to 255."""
View = NDArray[np.float32]
"""Shape (n, channels, height, width): standardised."""

ORGANIZATIONS = (1, 2, 4, 8)
LEVELS = 256
MULTIPLE = 8
"""Height and width of a patch are padded to a multiple: the paper's network halves them three times."""

SOURCES = {
    "MNIST": Source(
        "MNIST",
        {
            "mnist/train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "mnist/train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "mnist/t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "mnist/t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        "http://yann.lecun.com/exdb/mnist (LeCun, Cortes and Burges; CC BY-SA 3.0)",
    ),
    "CIFAR10": Source(
        "CIFAR10",
        {
            "cifar-10-batches-bin/data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "cifar-10-batches-bin/data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "cifar-10-batches-bin/data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "cifar-10-batches-bin/data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "cifar-10-batches-bin/data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "cifar-10-batches-bin/test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        "the 'binary version' at https://www.cs.toronto.edu/~kriz/cifar.html (Krizhevsky 2009; free to use)",
    ),
}

CIFAR10_RECORD = (3, 32, 32)
"""What follows the label's byte: channels red, green, blue, each row by row."""


class Patch(NamedTuple):
    """The place of an organization's part in the whole image, in pixels."""

    top: int
    left: int
    height: int
    width: int


class Images(NamedTuple):
    """Images and their classes."""

    pixels: Pixels
    y: NDArray[np.int64]
    """Shape (n,): codes of the classes."""


def load_images(name: str, organizations: int, data_dir: Folder = None, *, masked: bool = False) -> ViewSet:
    """MNIST or CIFAR10 with 1, 2, 4 or 8 organizations, "patch 1" (upper left,
    the label holder) to "patch 8".

    A view is float32, (n, channels, height, width): the organization's patch, standardised per channel with
    mean and deviation of its own training pixels, then padded with zeros to multiples of 8. ``masked`` is the
    paper's way: the full image, standardised as a whole, with zeros outside of the own patch and no padding;
    that takes ``organizations`` times the memory (CIFAR10 with 8: about 7 GB).
    """
    if name not in READERS:
        raise InvalidOptionError(f"image set must be one of {', '.join(READERS)}, got {name!r}")
    if organizations not in ORGANIZATIONS:
        raise InvalidOptionError(
            f"images are cut into patches for 1, 2, 4 or 8 organizations, got {organizations!r}"
        )
    train, test = READERS[name](data_dir)
    size = train.pixels.shape[2:]
    patches, everywhere = patch_layout(organizations, *size), Patch(0, 0, *size)

    def view(pixels: Pixels, patch: Patch) -> View:
        if masked:
            return standardised(_cut(pixels, patch), train.pixels, size, (patch.top, patch.left))
        return standardised(_cut(pixels, patch), _cut(train.pixels, patch), *_padded(patch))

    views = [{name: view(part.pixels, patch) for name, patch in patches.items()} for part in (train, test)]
    wholes = [
        next(iter(views[k].values())) if organizations == 1 else view(part.pixels, everywhere)
        for k, part in enumerate((train, test))
    ]
    return ViewSet(name, views[0], train.y, views[1], test.y, "accuracy", wholes[0], wholes[1])


def patch_layout(organizations: int, height: int, width: int) -> dict[str, Patch]:
    """The paper's patches of an image, in pixels, row by row: as many rows as columns, or half as many."""
    power = organizations.bit_length() - 1
    rows, columns = 2 ** (power // 2), 2 ** (power - power // 2)
    high, wide = height // rows, width // columns
    return {
        f"patch {row * columns + column + 1}": Patch(row * high, column * wide, high, wide)
        for row in range(rows)
        for column in range(columns)
    }


# --- from levels to views


def standardised(pixels: Pixels, by: Pixels, size: Sequence[int], corner: tuple[int, int] = (0, 0)) -> View:
    """Pixels with mean and deviation of the pixels ``by``, channel by channel, at ``corner`` of images of
    ``size``, with zeros elsewhere. A channel of one level only is divided by the whole range of levels.
    """
    rows, channels, height, width = pixels.shape
    view = np.zeros((rows, channels, *size), np.float32)
    inside = view[:, :, corner[0] : corner[0] + height, corner[1] : corner[1] + width]
    for channel in range(channels):
        share = np.bincount(by[:, channel].ravel(), minlength=LEVELS) / by[:, channel].size
        from_mean = np.arange(LEVELS) - share @ np.arange(LEVELS)
        deviation = np.sqrt(share @ from_mean**2) or LEVELS - 1
        inside[:, channel] = (from_mean / deviation).astype(np.float32)[pixels[:, channel]]
    return view


def _padded(patch: Patch) -> tuple[tuple[int, int], tuple[int, int]]:
    """Size and corner of the patch in the middle of an image whose sides are multiples of 8."""
    height, width = (-(-length // MULTIPLE) * MULTIPLE for length in (patch.height, patch.width))
    return (height, width), ((height - patch.height) // 2, (width - patch.width) // 2)


def _cut(pixels: Pixels, patch: Patch) -> Pixels:
    return pixels[:, :, patch.top : patch.top + patch.height, patch.left : patch.left + patch.width]


# --- files


def _mnist(data_dir: Folder) -> tuple[Images, Images]:
    def part(prefix: str) -> Images:
        pixels = _idx(data_dir, f"mnist/{prefix}-images-idx3-ubyte")
        labels = _idx(data_dir, f"mnist/{prefix}-labels-idx1-ubyte")
        return Images(pixels[:, None], labels.astype(np.int64))

    return part("train"), part("t10k")


def _idx(data_dir: Folder, file: str) -> Pixels:
    """An array in LeCun's idx form: a byte of dimensions at 3, their lengths
    as big-endian int32, the values.
    """
    content = SOURCES["MNIST"].read(data_dir, f"{file}.gz", file)
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _cifar10(data_dir: Folder) -> tuple[Images, Images]:
    train = [_batch(data_dir, f"data_batch_{number}.bin") for number in range(1, 6)]
    pixels = np.concatenate([batch.pixels for batch in train])
    y = np.concatenate([batch.y for batch in train])
    return Images(pixels, y), _batch(data_dir, "test_batch.bin")


def _batch(data_dir: Folder, file: str) -> Images:
    folders = ("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin")
    places = (f"{folder}/{file}{packing}" for folder in folders for packing in ("", ".xz"))
    content = SOURCES["CIFAR10"].read(data_dir, *places)
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + int(np.prod(CIFAR10_RECORD)))
    return Images(records[:, 1:].reshape(-1, *CIFAR10_RECORD), records[:, 0].astype(np.int64))


READERS: dict[str, Callable[[Folder], tuple[Images, Images]]] = {"MNIST": _mnist, "CIFAR10": _cifar10}
"""By name: the training part and the test part; each gets the data folder."""
