"""The formats of a table: each whole, each escaped, the page without anything from outside."""

import hashlib
import re
import xml.etree.ElementTree as ET
from base64 import b64decode, b64encode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from shutil import which
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import sync_playwright

from ltr.lab.analysis.verdicts import WORDS
from ltr.pages.report import (
    ReportBlock,
    ResultsPage,
    latex,
    latex_text,
    markdown,
    page,
    terminal,
)
from ltr.pages.style import interval_plot
from tests.helpers.made_table import made

_VOID = {"meta", "link", "br", "hr", "img", "input"}
ENDS = {"low": [0.4, 0.3], "high": [0.6, 0.5], "published": [0.5, None]}
LINES = pd.DataFrame({"row": ["a", "b"], "ours": [0.5, 0.4], **ENDS})
EVIL = """<script>alert("&'x'")</script> | a_b_ % $ # {x} ~ ^ \\ [y] *z* `w`"""
CHROMIUM = which("chromium") or which("google-chrome")


class Checked(HTMLParser):
    """Collects what a page is made of; a tag that is not closed in order is a failure."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        self.open += [tag] if tag not in _VOID else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self.open}:
            self.text += data

    def values(self, *names: str) -> list[str]:
        return [value for _, name, value in self.attributes if name in names]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("table"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_page_fits_a_browser_and_sorts_by_a_click(tmp_path: Path) -> None:
    texts = ["+0.5 ± 0.1", "-0.2", "+12.5*", "gone", "+1,200", "-0.2", "+3 of 9", "", "<9e-3"]
    rows = [(f"System {i}", text, *["0.1 to 0.2"] * 6) for i, text in enumerate(texts, 4)]
    block = ReportBlock("numbers", "all", ("", "map", *["interval"] * 6), tuple(rows))
    report = ResultsPage(
        "wide", "Wide", "python x" * 40, (("data", "here"),), (block,),
        plot=interval_plot({"map": LINES}, "a"),
        details=[("Rows", pd.DataFrame({"c": ["x" * 300]}))],
    )  # fmt: skip
    (tmp_path / "table.html").write_text(page(report))
    messages = list[Any]()
    requests = list[str]()
    orders = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM)
        shown = browser.new_page()
        for event in ("console", "pageerror"):
            shown.on(event, lambda message: messages.append(message))
        shown.on("request", lambda request: requests.append(request.url))
        for width in (1250, 380):  # a desktop's and a phone's
            shown.set_viewport_size({"width": width, "height": 800})
            shown.goto((tmp_path / "table.html").as_uri())
            shown.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            assert shown.evaluate("document.documentElement.scrollWidth") == width
        for column in (1, 1, 1, 0, 0):
            head = shown.locator("thead").first.locator("th").nth(column)
            head.get_by_role("button").click()
            names = shown.locator("tbody").first.locator("th").all_text_contents()
            orders.append(([int(n.split()[1]) for n in names], head.get_attribute("aria-sort")))
        browser.close()
    unsorted = [*range(4, 13)]
    assert orders == [
        ([8, 6, 10, 4, 12, 5, 9, 7, 11], "descending"),  # equal ones as before
        ([5, 9, 12, 4, 10, 6, 8, 7, 11], "ascending"),
        (unsorted, None),
        (unsorted, "ascending"),
        (unsorted[::-1], "descending"),
    ]
    assert (messages, {*requests}) == ([], {(tmp_path / "table.html").as_uri()})


@pytest.mark.slow
def test_page_is_valid_loads_nothing_and_has_plots(table: Path) -> None:
    text = (table / "table.html").read_text()
    page = Checked(text)
    assert {"link", "iframe", "object", "base"} & set(page.tags) == set()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)  # no other can run
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [value for value in page.values("content") if value.startswith("default-src")]
    assert policy.startswith("default-src 'none'")
    assert policy.endswith(f"script-src 'sha256-{digest}'")
    addresses = page.values("src", "href")
    ids = page.values("id")
    (drawing,) = [value for value in addresses if value[0] != "#"]
    assert {value[1:] for value in addresses if value[0] == "#"} <= set(ids)
    kind, _, picture = drawing.partition(",")
    assert kind == "data:image/svg+xml;base64"
    ET.fromstring(b64decode(picture))
    assert len(ids) == len(set(ids))
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert len(pd.read_csv(table / "runs.csv")) == 6


@pytest.mark.slow
def test_report_writes_every_number_in_full(table: Path) -> None:
    numbers, runs = (pd.read_csv(table / f"{name}.csv") for name in ("table", "runs"))
    assert list(dict.fromkeys(numbers["row"])) == ["RankNet", "BCE", "RankSVM linear L2 0.01"]
    for line in numbers.to_dict("records"):
        run_values = runs.loc[runs["row"] == line["row"], f"{line['convention']} {line['metric']}"]
        assert line["ours"] == pytest.approx(run_values.mean(), abs=1e-12)
        assert line["deviation"] == pytest.approx(run_values.std(), abs=1e-12)
    judged = numbers[(numbers["convention"] == "paper") & (numbers["metric"] == "ndcg@15")]
    assert judged["ours"].between(judged["low"], judged["high"]).all()
    verdicts = judged.set_index("row")["verdict"]
    assert pd.isna(verdicts["RankNet"])
    assert set(verdicts.drop("RankNet")) <= set(WORDS)
    contents = {path.name: path.read_bytes() for path in table.glob("table.*")}
    assert made(table.parents[2]) == table  # the same runs, the same files
    assert {path.name: path.read_bytes() for path in table.glob("table.*")} == contents


def test_renderers_escape_names() -> None:
    block = ReportBlock(EVIL, EVIL, ("", EVIL), ((EVIL, EVIL),))
    details = [(EVIL, pd.DataFrame({EVIL: [EVIL]}))]
    evil = ResultsPage("evil", EVIL, EVIL, ((EVIL, EVIL),), (block,))
    html = Checked(page(replace(evil, plot="eA==", details=details)))
    assert html.tags.count("script") == 1
    assert html.text.count(EVIL) == 12
    assert EVIL in terminal(evil)

    text = markdown(evil)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {3}
    (command,) = [line for line in text.splitlines() if line.startswith("    ")]
    assert command == f"    {EVIL}"
    assert not re.search(r"(?<!\\)<script", text.replace(command, ""))

    body = "\n".join(line for line in latex(evil).splitlines() if not line.startswith("%"))
    assert not re.search(r"(?<!\\ensuremath{)[<>]|(?<!\\)[#%]", body)
    assert r"a\_b\_ \% \$ \# \{x\} \textasciitilde{} \^{}" in body
    assert r"\textbackslash{} {[}y]" in body
    assert [body.count(rf"\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
    assert body.count("{") == body.count("}")
    assert latex_text("0.5 ± 0.1") == r"0.5 $\pm$ 0.1"


def test_page_colours_every_verdict_and_interval_plot_repeats() -> None:
    style = page(ResultsPage("plain", "Plain", "make", (), ()))
    for verdict in WORDS:
        assert len(re.findall(rf"--{verdict}: #[0-9a-f]{{6}};", style)) == 3  # light, dark, print
        assert f"td.{verdict}" in style
    assert len({interval_plot({"map": LINES}, "a") for _ in range(2)}) == 1


def test_page_shows_details_with_four_digits_and_nothing_for_nan() -> None:
    frame = pd.DataFrame({"seed": [1], "lr": [0.0000301], "map": [float("nan")]})
    html = Checked(page(ResultsPage("plain", "Plain", "make", (), (), details=[("Runs", frame)])))
    assert "3.01e-05" in html.text
    assert "nan" not in html.text
