"""The report of a finished ticket: a page of text, JSON, and a page of HTML for every screen."""

import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cdd_agent import events
from cdd_agent.cli import report
from cdd_agent.cli.app import run
from cdd_agent.cli.report import _finalize
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.tickets.ticket import find
from cdd_agent.work.records import find_records
from cdd_agent.work.state import StepKey, Usage, pending_steps, replace_step
from cdd_agent.work.state_file import load_state, save_state
from tests.fakes.demo import SLUG

_VOID = {"meta", "br"}
_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
_COMMAND = (_CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


class Page(HTMLParser):
    """The tags and texts of a page; an element that is not closed is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def make_page(project: Path, path: Path) -> str:
    assert run(["--project", str(project), "report", SLUG, "--html", str(path)]) == 0
    return path.read_text(encoding="utf-8")


def test_the_story_is_told_as_text_and_as_json(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--project", str(finished), "report", SLUG]) == 0
    text = capsys.readouterr().out
    for word in ("completed: 1 of 1 step", "RED attempt 1 open", "GREEN attempt 1", "tokens", "Slowest tests"):
        assert word in text
    assert run(["--project", str(finished), "--json", "report", SLUG]) == 0
    story = json.loads(capsys.readouterr().out)
    assert story["event"] == "TicketReported"
    assert {"spec", "plan", "red", "green"} <= story["phases"].keys()
    attempts = story["steps"][0]["runs"][0]["attempts"]
    assert attempts[0]["phase"] == "red"
    assert all(found["message"] for each in attempts for found in (*each["reasons"], *each["findings"]))


def test_report_and_status_count_the_same_even_what_other_processes_used(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "project"
    shutil.copytree(finished, project, symlinks=True)
    path = find(project, SLUG).state_path
    state = load_state(path)
    assert state is not None
    save_state(path, replace(state, usage=state.usage + Usage(input_tokens=12_345, output_tokens=6, calls=3)))

    assert run(["--project", str(project), "--json", "report", SLUG]) == 0
    story = json.loads(capsys.readouterr().out)
    parts = [spent["usage"] for spent in story["phases"].values()]
    assert story["phases"]["not in this journal"]["usage"]["input_tokens"] == 12_345
    for kind in ("input_tokens", "output_tokens", "calls"):
        assert sum(part[kind] for part in parts) == story["usage"][kind]
    assert run(["--project", str(project), "status", SLUG]) == 0
    read = sum(story["usage"][f"{kind}_tokens"] for kind in ("input", "cache_read", "cache_write"))
    assert f"{read:,} tokens read, {story['usage']['output_tokens']:,} written" in " ".join(
        capsys.readouterr().out.split()
    )


def test_the_page_needs_neither_network_nor_script_and_every_link_leads_somewhere(
    finished: Path, tmp_path: Path
) -> None:
    text = make_page(finished, tmp_path / "report.html")
    page = Page(text)
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert "http:" not in text
    assert "https:" not in text
    targets = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = [attributes["href"] or "" for tag, attributes in page.tags if tag == "a"]
    assert links[0] == "#main", "the first stop of the keyboard skips the header"
    assert {link.removeprefix("#") for link in links} <= targets
    assert any(tag == "svg" for tag, _ in page.tags)
    assert "added" in {attributes.get("class") for tag, attributes in page.tags if tag == "tr"}


def test_the_picture_of_any_number_of_steps_fits_on_a_telephone(finished: Path, tmp_path: Path) -> None:
    path, title = find(finished, SLUG).state_path, "Ein langer Titel, 日本語のタイトルと noch viel mehr Text"
    state = load_state(path)
    assert state is not None
    more = pending_steps(StepKey(number=number, title=title, text_sha256="") for number in range(2, 7))
    save_state(path, replace(state, step_executions={**state.step_executions, **more}))
    page = Page(make_page(finished, tmp_path / "report.html"))
    (picture,) = (attributes for tag, attributes in page.tags if tag == "svg")
    assert int(picture["width"] or 0) <= 400 - 2 * 10
    boxes = {tuple(map(int, (box["x"] or "", box["y"] or ""))) for tag, box in page.tags if tag == "rect"}
    assert len(boxes) == 6
    labels = [text for text in page.texts if text.startswith("2. ") or text.endswith("…")]
    assert labels[:2] == ["2. Ein langer Titel,", "日本語のタイトルと…"]


def test_texts_of_others_are_escaped_and_keys_masked(finished: Path, tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "a" * 95
    evil = f"<script>alert(1)</script> {key} \x1b[2J"
    journal = find_records(finished).folder / "journal" / SLUG / "events.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        if line["event"] == "GateJudged":
            line["evidence"] = evil
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(["--project", str(finished), "comment", "add", "commit", evil]) == 0
    text = make_page(finished, tmp_path / "report.html")
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text
    assert key not in text
    assert "\x1b" not in text


_HOSTILE = (
    "</title></style></script><script>alert(1)</script>",
    '" onmouseover="alert(2)" x="\' onload=\'alert(3)\' /><img src=x onerror=alert(4)>',
    "<a href=javascript:alert(5)>javascript:alert(6)</a>",
    "<!-- ]]> &lt;b&gt; {{ 7 * 7 }} {% raw %} {# #}",
)


def test_whatever_the_journal_and_other_files_say_the_page_has_the_same_elements(
    finished: Path, tmp_path: Path
) -> None:
    path = find(finished, SLUG).state_path
    before, state = Page(make_page(finished, tmp_path / "before.html")), load_state(path)
    assert state is not None
    evil = " ".join(_HOSTILE)
    journal = find_records(finished).folder / "journal" / SLUG / "events.jsonl"
    names = {"time", "evidence", "commit", "subject", "title", "guidance", "model", "phase"}
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        line.update({name: f"{line[name]} {evil}" for name in names & line.keys()})
        for reason in line.get("reasons", ()):
            reason.update(code=f"{reason['code']} {evil}", case="text", parts={"text": evil})
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    save_state(path, replace_step(replace(state, model=evil), replace(state.execution(1), title=evil, error=evil)))
    document = find(finished, SLUG).spec_path
    document.write_text(re.sub("(?m)^title: .*$", lambda _: f"title: {json.dumps(evil)}", document.read_text()))

    page = Page(make_page(finished, tmp_path / "after.html"))
    assert {(tag, *attributes) for tag, attributes in page.tags} == {(tag, *each) for tag, each in before.tags}
    assert all((each["href"] or "").startswith("#") for _, each in page.tags if "href" in each)
    assert not any(":" in (each[name] or "") for _, each in page.tags for name in ("id", "class") if name in each)
    text = "".join(page.texts)
    for part in _HOSTILE:
        assert text.count(part) > 8


def test_the_page_shows_nothing_but_text_and_numbers() -> None:
    assert _finalize("\u202e<b>") == "<U+202E><b>"
    for value in (None, b"bytes", object(), ("a",), Path("x")):
        with pytest.raises(TypeError, match="neither text nor a number"):
            _finalize(value)
    template = (Path(report.__file__).parent / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"\bsafe\b|autoescape false", template), "nothing is exempt from escaping"
    unquoted = re.findall(r"=\{\{|\b(?:on\w+|src|action)=", template)
    assert not unquoted, "a value in an attribute is in quotation marks"


def test_a_comment_on_an_earlier_version_of_the_step_is_where_its_line_is_now(finished: Path, tmp_path: Path) -> None:
    place = "durations/reading.py:9"  # the docstring, which GREEN moves to line 12
    assert run(["--project", str(finished), "comment", "add", place, "Name them.", "--commit", "HEAD~1"]) == 0
    _, _, below = make_page(finished, tmp_path / "report.html").partition('<td class="n">9</td><td class="n">12</td>')
    row = below.partition("</tr>")[2].partition("</tr>")[0]
    assert row.startswith('<tr class="comment">')
    assert "durations/reading.py:12 (was durations/reading.py:9)</b>: Name them." in row


def iterate(project: Path, *, guidance: str) -> str:
    """Land another line in the code of step 1, as an iteration does; return its commit."""
    repository, path = Repository.find(project), find(project, SLUG).state_path
    state, head = load_state(path), repository.read_head()
    assert state is not None
    with (project / "durations/reading.py").open("a") as file:
        file.write("# iterated\n")
    message = f"refactor: again\n\nTicket: {SLUG}\nPhase: REFACTOR\nStep: 1\nHandoff-Id: 0123456789abcdef\n"
    commit = commit_paths(repository, message, paths=["durations/reading.py"])
    again = replace(state.execution(1), commits={"refactor": commit}, base_commit=head, attempts=())
    save_state(path, replace_step(state, again))
    with (find_records(project).folder / "journal" / SLUG / "events.jsonl").open("ab") as journal:
        for event in (
            events.StepStarted(number=1, total=1, title=again.title, guidance=guidance),
            events.AttemptStarted(phase="refactor", number=1, limit=3),
            events.GateJudged(phase="refactor", attempt=1, open=True, reasons=(), evidence="3 passed"),
            events.Committed(phase="refactor", commit=commit, subject="refactor: again"),
            events.StepFinished(number=1, status="completed", error=None),
        ):
            journal.write(b'{"time":"2026-11-20T10:00:00Z",' + events.encode(event)[1:] + b"\n")
    return commit


def test_an_iteration_comes_after_the_run_before_it_and_hides_none_of_that(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Repository.find(finished).git("log", ("-2", "--format=%h")).split()
    commit = iterate(finished, guidance="Mark\nit.")
    assert run(["--project", str(finished), "report", SLUG]) == 0
    text = capsys.readouterr().out
    first, heading, second = text.partition("Iteration 1: Mark it.")
    assert heading
    assert all(each in first for each in before)
    assert "Checked in a clean copy" in " ".join(first.split()), "the evidence is in the note"
    assert f"{commit[:10]} refactor: again" in second
    changes = make_page(finished, tmp_path / "report.html").partition('<h2 id="changes">')[2]
    earlier, heading, later = changes.partition("<h4>Iteration 1: Mark it.</h4>")
    assert heading
    assert "tests/test_reading.py" in earlier
    assert "# iterated" not in earlier
    assert "# iterated" in later


def test_without_a_journal_the_page_says_what_is_missing(finished: Path, tmp_path: Path) -> None:
    (find_records(finished).folder / "journal" / SLUG / "events.jsonl").unlink()
    text = make_page(finished, tmp_path / "report.html")
    assert "times and costs are missing" in text
    assert "GREEN attempt 1" in text


def test_what_cannot_be_reported_is_an_error(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(finished), "report", SLUG, "--html", str(finished / "README.md" / "report.html")]) == 2
    assert "hint: name another file" in capsys.readouterr().err
    run(["--project", str(finished), "new", "another"])
    assert run(["--project", str(finished), "report", "another"]) == 2
    assert "hint: cdd exec another" in capsys.readouterr().err


def first_pixel(png: Path) -> tuple[int, ...]:
    data, at, packed = png.read_bytes(), 8, b""
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        packed += data[at + 8 : at + 8 + size] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += size + 12
    return tuple(zlib.decompress(packed)[1:4])


@pytest.mark.slow
@pytest.mark.needs(_CHROMIUM, "--version")
@pytest.mark.parametrize("width", [400, 1400])
def test_a_browser_shows_the_page_in_its_width_and_in_both_colors(finished: Path, tmp_path: Path, width: int) -> None:
    make_page(finished, tmp_path / "report.html")
    pixels = []
    for dark in ((), ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")):
        shot = tmp_path / "shot.png"
        options = (f"--user-data-dir={tmp_path}/profile", f"--window-size={width},900", f"--screenshot={shot}", *dark)
        subprocess.run([*_COMMAND, *options, (tmp_path / "report.html").as_uri()], check=True, timeout=120)
        pixels.append(first_pixel(shot))
    assert pixels == [(255, 255, 255), (13, 17, 23)]
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe src="report.html" style="width:{width}px;height:900px;border:0" '
        'onload="document.title = contentDocument.documentElement.scrollWidth"></iframe>'
    )
    options = (f"--user-data-dir={tmp_path}/profile", "--allow-file-access-from-files", "--virtual-time-budget=3000")
    dumped = subprocess.run(
        [*_COMMAND, *options, "--dump-dom", frame.as_uri()], check=True, timeout=120, capture_output=True, text=True
    )
    assert f"<title>{width}</title>" in dumped.stdout, "the page must not be wider than the window"
