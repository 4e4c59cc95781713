"""The HTML report in a real browser, from a file, with no network and no debugging port."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest
from lxml import html
from unit.reports.made_runs import FIVE, intent_of, made_run, many_nodes, red_run, with_texts

from lab.matrix.cell import Cell
from lab.reports.html import to_html
from lab.reports.topology import picture_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 60
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=document.title='owned'>\"'&"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


@dataclass(frozen=True)
class Page:
    """The document after its scripts have run, and what the browser said of it."""

    document: html.HtmlElement
    console: list[str]

    def cells(self) -> list[html.HtmlElement]:
        return self.document.xpath("//div[@id='maps']//b[starts-with(@class, 'c ')]")

    def text(self, element: str) -> str:
        return self.document.get_element_by_id(element).text_content().strip()


Open = Callable[..., Page]


@pytest.fixture
def browse(tmp_path):
    def open_page(run, address="", extra=""):
        page = to_html(run, picture_of(intent_of()))
        if extra:  # only the page's own script may run: lift the policy for the test's
            page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
            page = page.replace("</body>", f"<script>{extra}</script></body>")
        file = tmp_path / "report.html"
        file.write_text(page, encoding="utf-8")
        profile = tmp_path / "profile"
        out, err = chromium(f"{file.as_uri()}{address}", profile)
        shutil.rmtree(profile)
        console = [line for line in err.splitlines() if "CONSOLE" in line]
        return Page(html.fromstring(out), console)

    return open_page


def chromium(address: str, profile: Path) -> tuple[str, str]:
    """The document and the messages; the browser and its helpers are gone on return."""
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
        " --disable-background-networking --disable-component-update --enable-logging=stderr"
        " --virtual-time-budget=20000 --window-size=1000,800 --dump-dom"
    )
    command = [str(CHROMIUM), *flags.split(), f"--user-data-dir={profile}", address]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as browser:
        try:
            return browser.communicate(timeout=SECONDS)
        finally:
            if browser.poll() is None:
                os.killpg(browser.pid, signal.SIGKILL)


@pytest.mark.parametrize("trouble", ["healthy", "dead-node", "mixed"])
def test_every_cell_of_the_run_is_drawn_with_its_verdict(browse, trouble):
    run = made_run(trouble)
    page = browse(run)
    drawn = Counter(cell.get("class").removeprefix("c v-") for cell in page.cells())
    assert drawn == Counter(result.verdict for result in run.results)
    assert page.text("shown") == "2,280 cells"
    assert page.console == []


def test_ten_thousand_cells_are_all_drawn(browse):
    run = made_run("dead-node", many_nodes(25), 2, families=("pod-pod",))
    page = browse(run)
    assert len(page.cells()) == len(run.results) == 9_800
    assert page.console == []


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        (
            "#verdict=fail&family=nodeport",
            lambda r: r.verdict == "fail" and r.cell.family == "nodeport",
        ),
        ("#protocol=udp&size=large", lambda r: (r.cell.protocol, r.cell.size) == ("udp", "large")),
        ("#os=windows-outside", lambda r: r.cell.family == "pod-external" and "win" in r.cell.id),
        ("#q=win2-p1", lambda r: "win2-p1" in f"{r.cell.id}"),
        (
            "#verdict=red",
            lambda r: r.verdict in {"fail", "flaky", "unexpected-pass", "probe-error"},
        ),
        ("#family=no-such-family", lambda _: True),
    ],
    ids=["two filters", "protocol and size", "systems", "text", "anything red", "unknown value"],
)
def test_a_filter_in_the_address_narrows_the_cells(browse, address, wanted):
    run = made_run("mixed")
    page = browse(run, address)
    ids = [result.cell.id for result in run.results]
    drawn = sorted(ids[int(cell.get("data-i"))] for cell in page.cells())
    assert drawn == sorted(result.cell.id for result in run.results if wanted(result))
    assert page.console == []


def test_the_filter_narrows_the_table_and_the_counts_too(browse):
    page = browse(made_run("mixed"), "#verdict=flaky")
    rows = page.document.xpath("//section[@id='table']//tr[@data-i]")
    assert len(rows) == made_run("mixed").count("flaky") == len(page.cells()) > 0
    assert page.text("shown").endswith(" of 2,280 cells")


def test_the_link_of_a_machine_shows_its_cells_alone(browse):
    run = made_run("mixed")
    page = browse(run)
    (link,) = page.document.xpath("//section[@id='topology']//a[.='win2']/@href")
    ids = [result.cell.id for result in run.results]
    drawn = sorted(ids[int(cell.get("data-i"))] for cell in browse(run, link).cells())
    of_node = {result.cell.id for result in run.results if "win2" in nodes_of(result.cell)}
    assert drawn == sorted(of_node)
    assert not page.document.xpath("//section[@id='topology']//a[.='router']")


def nodes_of(cell: Cell) -> tuple[str | None, ...]:
    return (cell.source.node, cell.entry or cell.target.node)


def test_rows_are_folded_by_cause_and_a_fold_that_is_opened_grows_as_it_is_scrolled(browse):
    run = red_run(3)
    page = browse(
        run,
        extra="""
        setTimeout(() => {
          const box = document.querySelector('#table .scroll');
          const fold = document.querySelector('.fold button');
          const rows = () => document.querySelectorAll('#table tr[data-i]').length;
          const counts = [rows()];
          fold.click();
          counts.push(rows());
          box.dispatchEvent(new Event('scroll'));
          counts.push(rows());
          box.scrollTop = box.scrollHeight;
          box.dispatchEvent(new Event('scroll'));
          counts.push(rows());
          fold.click();
          document.title = [...counts, rows()];
        }, 3000);
        """,
    )
    folds = page.document.xpath("//th[@class='fold']")
    red = sum(result.verdict == "fail" for result in run.results)
    titles = [" ".join(fold.text_content().split()) for fold in folds]
    assert titles[0].startswith("Cause: on worker2, chain 0: ")
    assert titles[0].endswith(f"{red - 2} cells")
    assert [title.startswith("Known limit: ") for title in titles] == [False, False, False, True]
    assert page.document.findtext(".//title") == "0,100,100,200,0"


def test_a_filter_without_matches_shows_a_message(browse):
    page = browse(made_run("healthy"), "#q=no-such-thing")
    assert page.cells() == []
    assert page.document.get_element_by_id("nothing").get("hidden") is None


def test_the_link_of_a_group_shows_its_cells_alone(browse):
    run = made_run("mixed")
    ids = [result.cell.id for result in run.results]
    lost = [name for name in ids if re.match(r"pod-pod/[^/]+/win2-p1/", name)]
    group = "//article[contains(h3, 'Every pod-pod cell to pod win2-p1')]"
    (link,) = browse(run).document.xpath(f"{group}//a[starts-with(@href, '#group=')]/@href")
    page = browse(run, link)
    assert sorted(ids[int(cell.get("data-i"))] for cell in page.cells()) == sorted(lost)
    assert page.console == []


def test_focus_shows_everything_of_a_cell_and_arrows_move(browse):
    page = browse(
        made_run("dead-node"),
        extra="""
        setTimeout(() => {
          const scroll = document.querySelector('.family .scroll');
          const press = (where) => where.dispatchEvent(
            new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
          press(scroll);
          document.title = 'from ' + document.activeElement.ariaLabel;
          press(document.activeElement);
          document.title += ', to ' + document.activeElement.ariaLabel;
          document.querySelector('.c.v-fail').click();
        }, 3000);
        """,
    )
    assert page.document.findtext(".//title") == (
        "from pass: master-p1 to master-p2, tcp small, to pass: master-p1 to master-p2, tcp large"
    )
    tip = page.text("tip")
    for words in (
        "master-p1 to win1-p1",
        "an answer from win1-p1, which sees the source 10.244.0.4",
        "connect: no reply in 1.0 s",
        "expected to work, but timed out: connect: no reply in 1.0 s",
        "K8S-POD-POD: every pod reaches every other pod without NAT",
        "lab test overlay -k pod-pod/master-p1/win1-p1/tcp-small",
    ):
        assert words in tip


def test_hostile_names_stay_text(browse):
    run = with_texts(made_run("mixed", FIVE[:4]), HOSTILE)
    page = browse(run, f"#q={quote('alert(1)')}")
    assert len(page.cells()) == len(run.results)
    assert page.document.xpath("//img") == []
    assert len(page.document.xpath("//script")) == 2
    assert page.document.findtext(".//title").startswith("</script>")
    assert HOSTILE in page.document.xpath("//h1")[0].text_content()
    assert page.console == []


def test_hostile_names_stay_text_even_without_the_policy(browse):
    run = with_texts(made_run("mixed", FIVE[:3]), HOSTILE)
    page = browse(run, extra="setTimeout(() => document.querySelector('.c').click(), 3000)")
    assert page.document.xpath("//img") == []
    assert page.document.findtext(".//title") != "owned"
    assert HOSTILE in page.text("tip")


@pytest.mark.parametrize("allowed", ["true", "false"], ids=["clipboard", "refused clipboard"])
def test_enter_leads_to_copy_and_escape_back_to_the_cell(browse, allowed):
    """The real clipboard answers in its own time, which virtual time does not wait for."""
    page = browse(
        made_run("dead-node"),
        extra=f"const ALLOWED = {allowed};"
        """
        const clipboard = {writeText: async () => { if (!ALLOWED) throw new Error('refused'); }};
        Object.defineProperty(navigator, 'clipboard', {value: clipboard});
        setTimeout(async () => {
          const cell = document.querySelector('.c.v-fail');
          const press = (key) => document.activeElement.dispatchEvent(
            new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
          cell.focus();
          press('Enter');
          const button = document.activeElement;
          const said = [button.className, button.dataset.copy];
          button.click();
          await new Promise(
            (done) => new MutationObserver(done).observe(button, {childList: true}));
          said.push(button.textContent, document.activeElement === button);
          press('Escape');
          said.push(document.activeElement === cell, document.getElementById('tip').hidden);
          document.title = said.join('|');
        }, 3000);
        """,
    )
    repeat = "lab test overlay -k pod-pod/master-p1/win1-p1/tcp-small"
    assert page.document.findtext(".//title") == f"copy|{repeat}|Copied|true|true|true"
    assert page.console == []


def test_box_that_is_kept_open_follows_its_cell_when_the_page_is_scrolled(browse):
    page = browse(
        made_run("dead-node"),
        extra="""
        setTimeout(() => {
          const cell = document.querySelector('.c.v-fail');
          const tip = document.getElementById('tip');
          cell.scrollIntoView({block: 'start'});  // below it there is room
          cell.click();
          const apart = () => tip.getBoundingClientRect().top - cell.getBoundingClientRect().bottom;
          const before = apart();
          scrollBy(0, -20);
          document.dispatchEvent(new Event('scroll'));
          document.title = [tip.hidden, Math.round(before), Math.round(apart())].join('|');
        }, 3000);
        """,
    )
    hidden, before, after = (page.document.findtext(".//title") or "").split("|")
    assert (hidden, before, after) == ("false", "10", "10")


def test_latencies_fit_a_narrow_page(browse):
    page = browse(
        made_run("healthy"),
        extra="""
        setTimeout(() => {
          document.body.style.width = '400px';
          const box = document.querySelector('.histogram');
          const edge = (one) => one.getBoundingClientRect().right;
          const past = [...box.querySelectorAll('*')].filter((one) => edge(one) > edge(box));
          document.title = [edge(box) <= 400, past.length].join('|');
        }, 3000);
        """,
    )
    assert page.document.findtext(".//title") == "true|0"


def test_the_heading_of_services_on_several_nodes_is_not_cut(browse):
    run = made_run("healthy")
    shared = [
        replace(
            result,
            cell=replace(result.cell, target=replace(result.cell.target, name="to-all", node=None)),
        )
        for result in run.results
        if result.cell.family == "pod-service"
    ][:1]
    page = browse(
        replace(run, results=(*run.results, *shared)),
        extra="""
        setTimeout(() => {
          const heads = [...document.querySelectorAll('.headings th')];
          const these = heads.filter((one) => one.textContent === 'several nodes');
          document.title = [these.length, these.every((one) => one.scrollWidth <= one.clientWidth)];
        }, 3000);
        """,
    )
    assert page.document.findtext(".//title") == "1,true"


def test_a_red_page_is_some_screens_high_and_its_table_scrolls(browse):
    page = browse(
        made_run("dead-node"),
        extra="""
        setTimeout(() => {
          const box = document.querySelector('#table .scroll');
          document.querySelector('.fold button').click();
          const high = document.documentElement.scrollHeight;
          document.title = [high < 9000, box.clientHeight < box.scrollHeight];
        }, 3000);
        """,
    )
    assert page.document.findtext(".//title") == "true,true"


def test_a_select_that_only_says_that_it_changed_filters(browse):
    page = browse(
        made_run("mixed"),
        extra="""
        document.getElementById('filters').elements.verdict.value = 'flaky';
        document.getElementById('filters').elements.verdict.dispatchEvent(
          new Event('change', { bubbles: true }));
        """,
    )
    assert len(page.cells()) == made_run("mixed").count("flaky")


def test_a_link_of_the_contents_keeps_the_filter(browse):
    page = browse(
        made_run("mixed"),
        "#verdict=flaky",
        extra="""
        const links = [...document.querySelectorAll('.contents a')];
        links.find((link) => link.hash === '#latency').click();
        """,
    )
    assert len(page.cells()) == made_run("mixed").count("flaky")
    targets = [link.get("href")[1:] for link in page.document.xpath("//nav//a")]
    assert targets == ["findings", "topology", "matrix", "table", "limits", "latency"]
    assert all(page.document.get_element_by_id(target) is not None for target in targets)


def test_a_red_cell_tells_its_cause_and_the_command_that_explains_it(browse):
    run = made_run("dead-node")
    page = browse(
        run,
        extra="""
        setTimeout(() => {
          const red = document.querySelector('#maps b.v-fail');
          red.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
        }, 3000);
        """,
    )
    tip = page.text("tip")
    assert "none found on its path" in tip
    assert "lab explain overlay master-p1 win1-p1" in tip
