"""The page in a real Chromium: a learning of four processes is watched to its end, one dies and comes back.

``make test-browser`` runs it, with screenshots in the folder that GAL_SCREENSHOTS names.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gal.node.runtime.web
from gal.errors import TaskError
from patience import LONGEST, until
from ports import free_port
from real_nodes import HOLDER, Network

if not os.environ.get("GAL_BROWSER"):
    pytest.skip("browsers are started by make test-browser only", allow_module_level=True)

sync_api = pytest.importorskip("playwright.sync_api")

MILLISECONDS = 1000 * LONGEST
ORGANIZATIONS = ("lab", "hospital", "pharmacy")
NAMELESS = """() => [...document.querySelectorAll('button, input, select, a')].filter((one) =>
    !(one.textContent.trim() && one.tagName !== 'SELECT') && !one.labels?.length && !one.ariaLabel
).map((one) => one.outerHTML)"""
"""What a screen reader could not name."""
CUT = """() => {
    const cards = [...document.querySelectorAll('.card')].filter((one) => one.offsetParent);
    const boxes = cards.map((one) => one.getBoundingClientRect());
    const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    const room = document.querySelector('main')?.getBoundingClientRect();
    return cards.filter((one, at) => one.scrollWidth > one.clientWidth
        || boxes.some((other, place) => place !== at && overlap(boxes[at], other))
        || (one.matches('.wide, .docs .card') && boxes[at].width < room.width - 1)
        || boxes[at].width < Math.min(300, room.width - 1)
    ).map((one) => one.querySelector('h2').textContent);
}"""
"""Cards with something that does not fit, that lie on each other, or that have not the width they should."""
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found is not None, "there is no Chromium: apt-get install chromium"
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    options = {"cross_validation": 0, "validation_fraction": 0.25}
    with Network(tmp_path, ORGANIZATIONS, rounds=6, n_rows=200, paced=["lab"], options=options) as made:
        yield made


class Watched:
    """The label holder's page in a browser, and all that the browser complained about."""

    def __init__(self, browser: Any, address: str, token: str) -> None:
        self.problems: list[str] = []
        self.page = browser.new_page(viewport={"width": 1200, "height": 900})
        self.page.set_default_timeout(MILLISECONDS)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.goto(f"{address}#{token}")

    def _said(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(message.text)

    def sees(self, text: str, where: str = "body") -> None:
        """Wait until this text is there."""
        wanted = sync_api.expect(self.page.locator(where))
        wanted.to_contain_text(text, timeout=MILLISECONDS)

    def photograph(self, name: str) -> None:
        """Screenshots as people see it: light, dark, and on a telephone, where nothing may stick out."""
        folder = os.environ.get("GAL_SCREENSHOTS")
        for looks, width in (("light", 1200), ("dark", 1200), ("light", 400)):
            self.page.emulate_media(color_scheme=looks)
            self.page.set_viewport_size({"width": width, "height": 900})
            assert self.page.evaluate(TOO_WIDE) <= 0, f"{name} sticks out at {width} pixels"
            assert self.page.evaluate(CUT) == [], f"{name} is cut or overlaps at {width} pixels"
            if folder is not None:
                path = Path(folder) / f"{name}-{looks}-{width}.png"
                self.page.screenshot(path=path, full_page=True)
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": 1200, "height": 900})


def serve_page(network: Network) -> tuple[str, str]:
    """Start all nodes, the label holder's with its page: where it is, and its token."""
    port = free_port()
    at = f"127.0.0.1:{port}"
    network.running[HOLDER] = network.start(HOLDER, "serve", "--page", "--page-at", at)
    network.serve(*ORGANIZATIONS)
    until(lambda: "page: http" in network.running[HOLDER].said(), "the page")
    return f"http://{at}/", (network.home(HOLDER) / "http.token").read_text().strip()


@pytest.mark.timeout(280)
def test_a_learning_is_watched_to_its_end(network: Network, browser: Any) -> None:
    address, token = serve_page(network)
    assert token not in network.running[HOLDER].said()
    watched = Watched(browser, address, token)
    watched.sees("live", "#live")
    assert token not in watched.page.url
    watched.sees(HOLDER, "h1")
    watched.photograph("before")

    network.allow("lab", 3)
    learning = network.beside(network.learn)
    watched.sees("4 of at most 6 rounds done", "#learning")  # the first is the label holder's own
    watched.sees("lab: fitted values of round 5", "#waiting")
    watched.sees("waiting for lab", "#sentence")
    assert "Train loss from" in watched.page.locator("#curve svg").get_attribute("aria-label")
    round_ticks(watched)
    watched.page.locator("#curve summary").focus()
    network.kill("pharmacy", signal.SIGKILL)
    row = "#partners tr:has(td:text-is('pharmacy'))"
    watched.sees("not connected", row)
    watched.photograph("learning")
    network.serve("pharmacy")
    watched.sees("connected", f"{row} .good")
    network.allow("lab")
    watched.sees("finished", "#learning")
    assert watched.page.evaluate("() => document.activeElement.tagName") == "SUMMARY", "the focus has stayed"
    facts = learning.result()
    assert facts["status"] == "finished"
    watched.sees("predicts", "#versions")
    watched.sees("chain verified", "#chain")
    watched.sees("fitted", "#sums")
    watched.photograph("after")
    assert watched.page.evaluate(NAMELESS) == []

    failed(watched, network)
    assert watched.problems == []


@pytest.mark.timeout(200)
def test_the_curve_of_a_cross_validation_is_whole_at_the_end(tmp_path: Path, browser: Any) -> None:
    options = {"cross_validation": 2}
    with Network(tmp_path, ORGANIZATIONS, rounds=2, n_rows=120, options=options) as network:
        address, token = serve_page(network)
        watched = Watched(browser, address, token)
        watched.sees("live", "#live")
        network.learn()
        watched.sees("finished", "#learning")
        watched.sees("validation loss", "#curve figcaption")
        assert watched.problems == []


def round_ticks(watched: Watched) -> None:
    """The axis of the losses has a few round numbers, around all that is drawn."""
    words = watched.page.locator("#curve .tick.loss").all_text_contents()
    ticks = [float(word.replace(",", "")) for word in words]
    assert 3 <= len(ticks) <= 7
    assert all(len(word.replace(".", "").strip("0")) <= 2 for word in words), words
    low, high = watched.page.evaluate(
        "() => { const all = facts.learning.curve.flatMap((one) => [one.train_loss, one.validation_loss]);"
        "return [Math.min(...all), Math.max(...all)]; }"
    )
    assert ticks[0] <= low < high <= ticks[-1]


@pytest.mark.parametrize(
    ("low", "high", "powers", "words"),
    [
        (0.71, 0.93, False, ["0.70", "0.75", "0.80", "0.85", "0.90", "0.95"]),
        (0.5, 0.5, False, ["0.2", "0.4", "0.6", "0.8"]),
        (0, 0, False, ["-0.50", "-0.25", "0.00", "0.25", "0.50"]),
        (0.03, 0.69, True, ["0.02", "0.05", "0.1", "0.2", "0.5", "1"]),
        (1e-9, 2e12, True, ["1e-9", "1e-5", "0.1", "1,000", "10,000,000", "1e+11", "1e+13"]),
    ],
)
def test_ticks_are_round(empty_page: Any, low: float, high: float, powers: bool, words: list[str]) -> None:
    found = empty_page.evaluate(
        "([low, high, powers]) => tickWords(axisTicks(low, high, powers), powers)", [low, high, powers]
    )
    assert found == words


def test_sizes_have_units(empty_page: Any) -> None:
    """Thousands, not 1,024; one decimal."""
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 35_360: "35.4 kB", 1_500_000: "1.5 MB", 2e9: "2.0 GB"}
    assert empty_page.evaluate("(all) => all.map(bytes)", list(sizes)) == list(sizes.values())


@pytest.fixture(scope="module")
def empty_page(browser: Any) -> Any:
    """The page's script alone."""
    page = browser.new_page()
    page.add_script_tag(path=Path(gal.node.runtime.web.__file__).parent / "static/page.js")
    return page


def failed(watched: Watched, network: Network) -> None:
    """A learning that too few came to is told in the first sentence, and why."""
    network.kill("pharmacy", signal.SIGTERM)
    with pytest.raises(TaskError, match="only 3 of 4"):
        network.learn(quorum=4, join=0.1)
    watched.sees("The last learning, of risk, ended early.", "#sentence")
    watched.sees("only 3 of 4 organizations are present", "#learning .bad")
    watched.photograph("failed")
    network.serve("pharmacy")


@pytest.mark.timeout(120)
def test_without_the_token_nothing_is_seen(network: Network, browser: Any) -> None:
    address, token = serve_page(network)
    watched = Watched(browser, address, "guessed-and-wrong")
    watched.sees("not the token of the node", "#notice")
    assert not watched.page.locator("#main").is_visible()
    watched.photograph("entry")
    watched.page.get_by_label("Token of this node").fill(token)
    watched.page.keyboard.press("Enter")
    watched.sees("live", "#live")
    sync_api.expect(watched.page.locator("#main")).to_be_visible(timeout=MILLISECONDS)
