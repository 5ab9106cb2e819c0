"""The default local model, and how it reads tables."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from gal.on_demand import on_demand as _on_demand

if _TYPE_CHECKING:
    from gal.models.tabular.columns import HowRead
    from gal.models.tabular.table_encoder import TableEncoder
    from gal.models.tabular.tabular_model import TabularModel, default_model, takes_missing_values

__all__ = [
    "HowRead",
    "TableEncoder",
    "TabularModel",
    "default_model",
    "takes_missing_values",
]

__getattr__, __dir__ = _on_demand(
    __name__,
    globals(),
    {
        "HowRead": "columns",
        "TableEncoder": "table_encoder",
        "TabularModel": "tabular_model",
        "default_model": "tabular_model",
        "takes_missing_values": "tabular_model",
    },
)
