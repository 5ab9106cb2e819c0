"""Scripts of ``benchmarks``, for tests that use or run them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load_benchmark(name: str) -> ModuleType:
    """A script of ``benchmarks``, which is no package."""
    path = BENCHMARKS / f"{name}.py"
    found = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    found.loader.exec_module(module)
    return module
