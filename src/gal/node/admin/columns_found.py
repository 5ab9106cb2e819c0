"""What the default local model understands of a node's columns, in a line each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gal.models.reading.column_reading import column_readings, shown
from gal.node.config.configuration import NodeConfiguration
from gal.node.source.data import view_of_table


def columns_found(configuration: NodeConfiguration, table: Any, most: int) -> Iterator[str]:
    """A sentence for each column that is no plain number, by so many of the first rows."""
    import pandas as pd

    view = view_of_table(table, np.arange(min(len(table), most)))
    frame = pd.DataFrame(view, columns=list(table.features)) if isinstance(view, np.ndarray) else view
    for name in table.dates:  # days since 1970, as people write them
        frame[name] = pd.to_datetime(frame[name], unit="D", errors="coerce")
    text = [name for name in frame.columns if getattr(frame[name].dtype, "categories", None) is not None]
    frame = frame.astype(dict.fromkeys(text, object))
    declared = {} if configuration.data is None else configuration.data.columns
    plain = 0
    for one in column_readings(frame, declared):
        if one.is_plain or (one.kind == "id" and one.name not in text and not one.declared):
            plain += 1
            continue
        missing = f", {one.missing:.0%} missing" if one.missing else ""
        said = "as you said, " if one.declared else ""
        yield f"{shown(one.name, 40)}: {said}{one.kind}{missing} ({', '.join(one.examples)}): {one.done}"
    if plain:
        yield f"{plain} of {len(table.features)} are numbers as they are"


__all__ = ["columns_found"]
