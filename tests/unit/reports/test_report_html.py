import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256

import pytest
from lxml import html
from unit.reports.made_runs import (
    REACHED,
    SAMPLED,
    intent_of,
    made_assertion,
    made_run,
    many_nodes,
    red_run,
    with_texts,
)

from lab.matrix.verdict import GREEN, RunResult
from lab.reports.html import COLUMNS, STATIC_ROWS, escape_json, to_html
from lab.reports.topology import picture_of
from lab.state.provenance import Provenance
from lab.state.rows import RunRow

PICTURE = picture_of(intent_of())
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


def data_of(page: str) -> dict:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match
    return json.loads(match[1])


def test_nothing_outside_the_file_is_named_where_a_browser_would_fetch_it():
    run = made_run("mixed")
    cited = replace(run, results=tuple(
        replace(each, expectation=replace(each.expectation, source="https://example.org/doc"))
        for each in run.results
    ))  # fmt: skip
    page = html.fromstring(to_html(cited, PICTURE))
    fetched = {"src", "srcset", "href", "action", "formaction", "data", "poster", "background"}
    for element in page.iter():
        for name in fetched & set(element.attrib):
            assert element.attrib[name].startswith(("#", "data:")), (element.tag, name)
    styles = [element.text for element in page.iter("style")] + page.xpath("//@style")
    assert not re.search(r"@import|url\(", "\n".join(styles))


def test_the_page_states_lab_scenario_verdict_provider_and_emulation():
    page = to_html(made_run("dead-node"), PICTURE)
    for words in (
        "1,000 of 2,280 cells are not as expected.",
        "21 November 2026, 10:15:00 UTC",
        "emulated: win1, win2",
        "Everything to and from win1 (1,000 of 1,000 cells)",
        "lab test overlay -k pod-pod/master-p1/win1-p1/tcp-small",
        "WIN-NODEPORT-SELF",
        "a Windows node cannot reach a NodePort on itself",
        "Kubernetes documentation, Networking on Windows",
    ):
        assert words in page


def test_without_javascript_the_table_has_its_first_rows():
    page = to_html(made_run("dead-node"), PICTURE)
    body = page.partition('<tbody id="rows">')[2].partition("</tbody>")[0]
    assert body.count("<tr>") == STATIC_ROWS
    assert "The first 100 of 1,024 cells" in page


def test_the_data_hold_every_cell_and_every_group():
    run = made_run("mixed")
    data = data_of(to_html(run, PICTURE))
    place = COLUMNS.index("id")
    assert data["columns"] == list(COLUMNS)
    assert [data["strings"][row[place]] for row in data["cells"]] == [
        each.cell.id for each in run.results
    ]
    assert {len(row) for row in data["cells"]} == {len(COLUMNS)}
    assert [len(group) for group in data["groups"]][:3] == [6, 96, 36]


def test_the_script_that_may_run_is_the_page_s_own():
    page = to_html(made_run("healthy"), PICTURE)
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_hostile_texts_cannot_open_an_element():
    page = to_html(with_texts(made_run("mixed"), HOSTILE), PICTURE)
    plain = to_html(made_run("mixed"), PICTURE)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert page.count("<script") == plain.count("<script")
    assert page.count("</script") == plain.count("</script")


def test_escaped_json_is_the_same_json():
    value = {"a": HOSTILE, "b": "\u2028<!--"}
    text = escape_json(json.dumps(value))
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


def test_ten_thousand_cells_stay_below_six_megabytes():
    run = made_run("mtu-hole", many_nodes(11), 2)
    run = replace(run, results=run.results[:10_000])
    assert len(run.results) == 10_000
    assert len(to_html(run, PICTURE).encode()) < 6_000_000


@pytest.mark.parametrize("started", ["", "yesterday"])
def test_a_time_that_cannot_be_read_is_shown_as_it_is(started):
    assert f"<dd>{started}</dd>" in to_html(replace(made_run("healthy"), started=started), PICTURE)


def test_the_card_of_a_cause_has_the_commands_that_show_and_mend_it():
    card = html.fromstring(to_html(red_run(2), PICTURE)).find_class("finding")[0]
    commands = dict(zip(card.xpath(".//dt/text()"), card.xpath(".//dd"), strict=True))
    told = {name: place.text_content().removesuffix("Copy") for name, place in commands.items()}
    assert told["See"] == "lab exec overlay worker2 -- nft list ruleset"
    assert told["Fix"] == "lab exec overlay worker2 -- nft flush ruleset"
    gone = html.fromstring(to_html(replace(red_run(2), temporary=True), PICTURE))
    assert not set(gone.xpath("//dt/text()")) & {"See", "Fix", "Explain"}


def test_only_red_cells_of_a_lab_that_is_up_have_a_command_that_explains_them():
    for temporary in (False, True):
        run = replace(made_run("mixed"), temporary=temporary)
        data = data_of(to_html(run, PICTURE))
        place = data["columns"].index("explain")
        commands = [data["strings"][row[place]] for row in data["cells"]]
        red = [not temporary and result.verdict not in GREEN for result in run.results]
        assert [bool(command) for command in commands] == red


def test_assertions_are_in_a_table_that_is_open_where_one_does_not_hold():
    made = (made_assertion("pass"), made_assertion("known-limit", "win1"))
    for assertions, is_open in ((made, False), ((*made, made_assertion("fail", "worker2")), True)):
        run = replace(made_run("healthy"), assertions=assertions)
        table = html.fromstring(to_html(run, PICTURE)).get_element_by_id("assertions")
        assert ("open" in table.attrib) == is_open
        assert len(table.findall(".//tbody/tr")) == len(assertions)
        assert "cat '/a b'" in table.text_content()


def test_the_page_leads_to_the_run_before_and_says_how_to_compare():
    counts = {"pass": 2_000, "fail": 280, "flaky": 0}
    started = "2026-11-20T10:15:00+00:00"
    row = ("20261120-101500-1111", "overlay", "t", "overlay", "netns", started, 2.0, False, counts)
    run = made_run("healthy")
    page = html.fromstring(to_html(run, PICTURE, RunRow(*row)))
    fact = page.get_element_by_id("before")
    assert fact.find(".//a").get("href") == "../20261120-101500-1111/report.html"
    assert fact.text_content().endswith(", 2,000 pass, 280 fail")
    assert f"lab diff 20261120-101500-1111 {run.run}" in page.text_content()
    assert "Run before" not in to_html(run, PICTURE)


def test_the_page_says_what_made_the_run():
    made_by = Provenance("0.1.0", "1f2e3d4c5b6a", "3.11.2", "Linux 6.1.0", "x86_64")
    page = to_html(replace(made_run("healthy"), provenance=made_by), PICTURE)
    words = "Made by hybridlab 0.1.0, commit 1f2e3d4c5b6a on Python 3.11.2, Linux 6.1.0, x86_64."
    assert words in page
    assert "Made by" not in to_html(made_run("healthy"), PICTURE)


def test_a_run_without_cells_is_red_and_has_a_page():
    empty: RunResult = replace(made_run("healthy"), results=())
    page = to_html(empty, PICTURE)
    assert "There were no cells to judge." in page
    assert '<header class="top red">' in page


def test_the_tile_of_one_cell_is_singular():
    run = made_run("healthy")
    page = html.fromstring(to_html(replace(run, results=run.results[:1]), PICTURE))
    assert page.find_class("tile")[0].text_content() == "1cell"


def test_the_page_of_a_sample_has_its_total_and_its_coverage():
    page = html.fromstring(to_html(replace(made_run("healthy"), coverage=SAMPLED), PICTURE))
    badges = [badge.text_content() for badge in page.xpath("//p[@class='badge']")]
    assert f"1,234 of 36,134,400 cells: {REACHED}" in badges
