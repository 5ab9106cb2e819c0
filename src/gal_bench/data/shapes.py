"""ModelNet40 as views: twelve cameras around an object, each of them an organization.

``load_shapes()`` reads point clouds below the data folder (``data_dir``, else ``GAL_DATA``), checked by their
checksums, and renders them. The split is the official one, 9,843 training and 2,468 test shapes; **the paper
used 3,163 and 800 of them, unnamed**, so its figures are not quite comparable.

- ``modelnet40/points_train.npy.xz``, ``points_test``: (2, n, 3, points) bytes, see ``unpack_points``;
- ``modelnet40/meta_train.npz``, ``meta_test``: ``label`` (n,), codes 0, 1, ... of the classes;
- twelve cameras around the upright (z) axis, 30 degrees apart and 30 degrees above the ground, look at the
  center, as in multi-view recognition (Su et al. 2015);
- the projection is orthographic: the unit sphere fills a picture of 32 x 32 pixels, and a point covers the
  2 x 2 pixels nearest to it, so that 1024 points close most surfaces;
- three channels: how near the nearest point is, how many points there are, and the shade under a light above
  the camera's left shoulder. A small network on camera 1's view of 4,000 shapes recognized of 1,000 others
  70 % by the silhouette, 79 % by depth, 81 % with density, and 82 to 83 % with shading.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal_bench.data.images import standardised
from gal_bench.data.sources import Source, ViewSet

Points = NDArray[np.float32]
"""Shape (n, points, 3): x, y and z (up) in the unit sphere."""
Pictures = NDArray[np.uint8]
"""Shape (n, cameras, size, size): levels, 0 for the background; rows run downward."""

NAME = "ModelNet40"
SOURCES = {
    NAME: Source(
        NAME,
        {
            "modelnet40/points_train.npy.xz": "9ab155469d741e31ac391829890ef1eabf9180b441489aa1a905057dc154cc08",
            "modelnet40/meta_train.npz": "25886533624306d0ae7409eaead3b0e0c93c3388e852102ff76712f17f7ffefc",
            "modelnet40/points_test.npy.xz": "a28d426a38ae98ef1c43bbc568a127482a477d61e5dc4c6c4eb48cedeadd97cf",
            "modelnet40/meta_test.npz": "34e945c47a2f8544312eab52300b0ecf9abe8e9e4ed54dc064fc9a5e4b19fba2",
        },
        "https://modelnet.cs.princeton.edu (Wu et al. 2015; for research), 1024 points a shape as in "
        "https://github.com/prasadsawant5/PointNet, packed as gal_bench.data.shapes says",
    )
}
STEPS = 32767.5
"""Of a packed coordinate, in a unit."""
CHANNELS = 3
"""Of a camera: depth, density, shading."""
CAMERAS = 12
SIZE = 32
"""Pixels a side."""
ELEVATION = 30.0
"""Degrees."""
DEPTH_LEVELS = 63
"""1 is one unit behind the centre, 63 one unit before it: two levels a pixel's width."""
DENSITY_LEVELS = 7
FULL_DENSITY = 64.0
"""Points in a pixel, of 1024 in all, from which on it is of the highest level."""
LIGHT = (-0.5, 0.5, 0.7)
"""Where the light comes from: right, up, towards the camera."""
SHADE_LEVELS = (64, 255)
"""Of a surface turned away from the light, and towards it."""
CHUNK = 64
"""Shapes rendered at a time: what is at work then stays in a processor's cache."""


def load_shapes(data_dir: Path | str | None = None) -> ViewSet:
    """ModelNet40, seen by the organizations "camera 1" (the label holder) to "camera 12".

    A view is float32, (n, 3, 32, 32): depth, density and shading, each standardised with mean and deviation
    of the camera's own training pixels. The whole, for who holds everything, has all views' channels stacked:
    (n, 36, 32, 32); the views are slices of it, without memory of their own.
    """
    train, y_train = _read(data_dir, "train")
    test, y_test = _read(data_dir, "test")
    wholes = [standardised(pixels, train, (SIZE, SIZE)) for pixels in (train, test)]
    by_camera = [
        {f"camera {m + 1}": whole[:, CHANNELS * m : CHANNELS * (m + 1)] for m in range(CAMERAS)}
        for whole in wholes
    ]
    return ViewSet(NAME, by_camera[0], y_train, by_camera[1], y_test, "accuracy", wholes[0], wholes[1])


def _read(data_dir: Path | str | None, part: str) -> tuple[Pictures, NDArray[np.int64]]:
    """All cameras' channels (n, cameras * 3, size, size), and labels."""
    packed, meta = (
        np.load(BytesIO(SOURCES[NAME].read(data_dir, f"modelnet40/{file}")), allow_pickle=False)
        for file in (f"points_{part}.npy.xz", f"meta_{part}.npz")
    )
    points, channels = unpack_points(packed), list[Pictures]()
    for start in range(0, len(points), CHUNK):
        depth, density = render(points[start : start + CHUNK])
        channels.append(np.stack([depth, density, shade(depth)], axis=2))
    return np.concatenate(channels).reshape(len(points), -1, SIZE, SIZE), meta["label"].astype(np.int64)


def unpack_points(packed: NDArray[np.uint8]) -> Points:
    """Points (n, points, 3) of bytes (2, n, 3, points): coordinates of 16 bits, the high bytes first; the
    points of a shape are ordered by x, of which the differences are kept.
    """
    steps = (packed[0].astype(np.uint16) << 8) | packed[1]
    steps[:, 0] = np.cumsum(steps[:, 0], axis=1, dtype=np.uint16)
    points = steps.astype(np.float32) / np.float32(STEPS) - np.float32(1)
    return np.ascontiguousarray(points.transpose(0, 2, 1))


# --- pictures of points


def cameras() -> NDArray[np.float32]:
    """Shape (cameras, 3, 3): for each the unit vectors right, up and towards the camera, in x, y, z."""
    turn = np.deg2rad(np.arange(CAMERAS) * (360.0 / CAMERAS))
    lift = np.deg2rad(ELEVATION)
    cos, sin, flat = np.cos(turn), np.sin(turn), np.zeros(CAMERAS)
    right = (-sin, cos, flat)
    up = (-np.sin(lift) * cos, -np.sin(lift) * sin, flat + np.cos(lift))
    towards = (np.cos(lift) * cos, np.cos(lift) * sin, flat + np.sin(lift))
    return np.array([right, up, towards]).transpose(2, 0, 1).astype(np.float32)


def render(points: Points) -> tuple[Pictures, Pictures]:
    """Depth (1, far, to 63, near) and density (1 to 7, the logarithm of the number of points) of every shape
    from every camera.

    Points fall into cells whose middles are corners of pixels: there are 33 x 33 per picture, and each pixel
    joins the four cells at its corners, which is far faster than four times the points.
    """
    shapes, count = points.shape[:2]
    seen = (points.reshape(-1, 3) @ cameras().reshape(-1, 3).T).reshape(shapes, count, CAMERAS, 3)
    across, upward, towards = np.moveaxis(seen, -1, 0)
    column = np.floor(across * (SIZE / 2) + (SIZE / 2 + 0.5)).astype(np.int32).clip(0, SIZE)
    row = np.floor(upward * (-SIZE / 2) + (SIZE / 2 + 0.5)).astype(np.int32).clip(0, SIZE)
    picture = np.arange(shapes * CAMERAS, dtype=np.int32).reshape(shapes, 1, CAMERAS)
    cell = ((picture * (SIZE + 1) + row) * (SIZE + 1) + column).ravel()
    level = np.rint((towards + 1.0) * ((DEPTH_LEVELS - 1) / 2)).clip(0, DEPTH_LEVELS - 1) + 1
    grid = (shapes, CAMERAS, SIZE + 1, SIZE + 1)
    nearest = np.zeros(np.prod(grid), np.uint8)
    np.maximum.at(nearest, cell, level.astype(np.uint8).ravel())
    number = np.bincount(cell, minlength=nearest.size)

    def joined(cells: NDArray[Any], join: Callable[..., Any]) -> NDArray[Any]:
        rows = join(cells[..., 1:, :], cells[..., :-1, :])
        return np.asarray(join(rows[..., 1:], rows[..., :-1]))

    depth = joined(nearest.reshape(grid), np.maximum)
    share = joined(number.reshape(grid).astype(np.float32), np.add) * np.float32(1024 / count)
    scaled = np.rint(np.log1p(share) * (DENSITY_LEVELS / np.log1p(FULL_DENSITY)))
    return depth, np.where(depth > 0, scaled.clip(1, DENSITY_LEVELS), 0).astype(np.uint8)


def shade(depth: Pictures) -> Pictures:
    """The light on the surface: 64 where it is turned away, 255 where it faces the light, 0 where none is."""
    light = np.array(LIGHT, np.float32) / np.float32(np.linalg.norm(LIGHT))
    dark, bright = SHADE_LEVELS
    right, down = _slope(depth, 3), _slope(depth, 2)
    facing = (light[2] - right * light[0] + down * light[1]) / np.sqrt(1 + right**2 + down**2)
    lit = np.rint(dark + (bright - dark) * facing.clip(0, 1))
    return np.where(depth > 0, lit, 0).astype(np.uint8)


def _slope(depth: Pictures, axis: int) -> NDArray[np.float32]:
    """How much nearer the surface gets along an axis (2: down, 3: right), in pixels a pixel: the mean of the
    steps to the two neighbors that are not background; 0 at lone pixels.
    """
    near = np.moveaxis(depth, axis, -1).astype(np.float32) * np.float32(SIZE / (DEPTH_LEVELS - 1))
    there = np.moveaxis(depth > 0, axis, -1)
    joined = there[..., 1:] & there[..., :-1]
    step = np.where(joined, near[..., 1:] - near[..., :-1], np.float32(0))
    total, number = np.zeros((2, *near.shape), np.float32)
    for side in (slice(1, None), slice(None, -1)):
        total[..., side] += step
        number[..., side] += joined
    mean: NDArray[np.float32] = np.divide(total, np.maximum(number, 1), dtype=np.float32)
    return np.moveaxis(mean, -1, axis)
