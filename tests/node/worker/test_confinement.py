"""The worker process is sandboxed: a local model reads its
organization's data, and nothing beside it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.label_holder.learning.open_version import Patience
from gal.node.worker import sandbox
from gal.node.worker.sandbox import landlock_version, readable_places
from gal.node.worker.worker import Worker, WorkFailedError
from patience import patient
from small_network import Network, numbers, running

landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")

CURIOUS = '''
"""A local model that looks around: what it could reach makes its fit fail."""
from pathlib import Path
from sklearn.linear_model import LinearRegression

BESIDE = Path(__file__).parents[1]

class Curious(LinearRegression):
    def fit(self, X, y, sample_weight=None):
        import curious_package.helper  # only now: it lies in a folder that may not be listed
        for attempt in (
            lambda: (BESIDE / "secret.csv").read_text(),
            lambda: (BESIDE / "net" / "ward" / "rows.csv").read_text(),
            lambda: (BESIDE / "written").write_text("x"),
            lambda: list(BESIDE.iterdir()),
        ):
            try:
                attempt()
            except PermissionError:
                continue
            raise RuntimeError("it reached what it should not")
        assert (BESIDE / "weights" / "w.txt").read_text() == "1"
        return super().fit(X, y, sample_weight)
'''


@landlock
def test_own_models_and_torch_learn_in_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in a folder above the homes, data outside the home, and a network of torch: all of them fit."""
    pytest.importorskip("torch", reason="the extra deep")
    package = tmp_path / "curious_package"
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.txt").write_text("1")
    (tmp_path / "secret.csv").write_text("of another user")
    package.mkdir()
    (package / "__init__.py").write_text(CURIOUS)
    (package / "helper.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    use = (
        'use = "curious_package:Curious"\ntrusted = ["curious_package.Curious"]\nreadable = '
        '["../../weights"]\n'
    )
    net = Network(
        tmp_path / "net",
        numbers(60),
        models={"lab": use, "ward": 'use = "network"\noptions = { epochs = 1 }'},
    )
    (tmp_path / "exports").mkdir()
    (tmp_path / "net" / "lab" / "rows.csv").rename(tmp_path / "exports" / "rows.csv")
    node_toml = tmp_path / "net" / "lab" / "node.toml"
    node_toml.write_text(node_toml.read_text().replace('"rows.csv"', '"../../exports/rows.csv"'))
    with running(net, own_processes=True):
        net.invite("within", rounds=1, cross_validation=0, validation_fraction=0.0)
        events: list[object] = []
        patience = Patience(join=patient(120), deadline=patient(120))  # three processes import their models
        facts = net.learn("within", patience=patience, on_event=events.append)
        assert facts["missed"] == {}, events
        net.tables["clinic"].to_csv(tmp_path / "new.csv", index=False)  # own columns, outside the home
        found = net.holder.predict_file("within", tmp_path / "new.csv")
        assert (found["missing"], found["degraded"]) == ({}, 0)
    assert not (tmp_path / "written").exists()
    assert list((tmp_path / "net" / "clinic" / "tmp").glob("rows-*")) == []


def configuration(home: Path, data: str, model: str = "") -> NodeConfiguration:
    home.mkdir(parents=True, exist_ok=True)
    (home / "node.toml").write_text(f'name = "lab"\n[data]\nrow_id = "id"\n{data}\n[model]\n{model}\n')
    return read_configuration(home)


def test_the_folder_of_the_data_is_read_unless_it_holds_more(tmp_path: Path) -> None:
    home = tmp_path / "homes" / "lab"
    (tmp_path / "exports").mkdir()
    for path in (tmp_path / "exports" / "rows.csv", tmp_path / "homes-rows.csv"):
        path.write_text("id\n1\n")
    outside = configuration(home, f'source = "{tmp_path}/exports/rows.csv"\nsecret_file = "none.txt"')
    assert readable_places(outside) == [tmp_path / "exports", home / "none.txt"]
    beside = configuration(home, f'source = "{tmp_path}/homes-rows.csv"')
    assert readable_places(beside) == [tmp_path / "homes-rows.csv"]


def test_without_landlock_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    assert "no Landlock" in sandbox.confine(configuration(tmp_path, 'source = "rows.csv"'))


def test_data_that_were_replaced_are_read_by_a_new_process(tmp_path: Path) -> None:
    """Beside the home folder only the file itself can be read, and a new export is another file."""
    source = tmp_path / "rows.csv"
    source.write_text("id,a\n1,0.5\n2,1.5\n")
    worker = Worker(configuration(tmp_path / "lab", f'source = "{source}"', 'use = "linear"'))
    try:
        assert worker("rows")[0]["n_rows"] == 2
        before = worker.pid
        source.unlink()
        with pytest.raises(WorkFailedError):
            worker("rows")
        (tmp_path / "new.csv").write_text("id,a\n1,0.5\n2,1.5\n3,2.5\n")
        (tmp_path / "new.csv").replace(source)
        assert worker("rows")[0]["n_rows"] == 3
        assert (worker.pid != before) == (landlock_version() > 0)
    finally:
        worker.close()
