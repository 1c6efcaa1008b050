import os
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.framework import read_junit
from tests.cdd_agent.testrun.frameworks.compiled_samples import parse_junit


def test_a_test_counts_wherever_it_stands() -> None:
    text = b"""<testsuites><testcase name="top"/><testsuite name="a"><testsuite name="b"><testcase name="in"
        classname="C" file="x.js" line="7" time="1,234.5"/></testsuite></testsuite></testsuites>"""
    (top, inner), problem = parse_junit(text)
    assert problem is None
    assert (top.name, top.outcome) == ("top", "passed")
    assert (inner.name, inner.classname, inner.duration_s) == ("in", "C", 1234.5)


@pytest.mark.parametrize(("tag", "outcome"), [("failure", "failed"), ("error", "error"), ("skipped", "skipped")])
def test_a_child_says_what_it_came_to(tag: str, outcome: str) -> None:
    (case,), _ = parse_junit(f"<testcase name='x'><{tag} type='T' message='m'>text</{tag}></testcase>".encode())
    assert (case.outcome, case.type, case.message, case.text) == (outcome, "T", "m", "text")


def test_a_failure_that_was_gone_when_run_again_is_a_rerun() -> None:
    (case,), _ = parse_junit(b"<testcase name='x'><flakyFailure/><flakyFailure/><system-out>o</system-out></testcase>")
    assert (case.outcome, case.reruns, case.output) == ("passed", 2, "o")


def test_namespaces_and_comments_do_not_matter() -> None:
    cases, problem = parse_junit(b"<r xmlns='urn:x'><!-- testcase --><testcase name='x'><failure/></testcase></r>")
    assert problem is None
    assert [case.outcome for case in cases] == ["failed"]


@pytest.mark.parametrize(
    "text",
    [
        b'<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><r><testcase name="&b;"/></r>',
        b'<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><r><testcase name="x">&a;</testcase></r>',
        b'<!DOCTYPE r SYSTEM "http://localhost/r.dtd"><r/>',
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE r [<!ENTITY a "a">]><r>&a;</r>'.encode("utf-16"),
    ],
)
def test_a_document_type_is_refused(text: bytes) -> None:
    cases, problem = parse_junit(text)
    assert cases == ()
    assert problem is not None
    assert problem.startswith("junit.xml cannot be read: it has a document type")


def test_what_a_test_printed_may_look_like_a_document_type() -> None:
    cases, problem = parse_junit(b"<testcase name='x'><system-out><![CDATA[<!DOCTYPE html>]]></system-out></testcase>")
    assert (len(cases), problem) == (1, None)


@pytest.mark.parametrize("text", [b"", b"<r>", b"\xff\xfe\x00", b"<?xml version='1.0' encoding='no-such'?><r/>"])
def test_what_is_no_xml_is_a_problem(text: bytes) -> None:
    cases, problem = parse_junit(text)
    assert cases == ()
    assert problem is not None


def test_depth_is_no_matter() -> None:
    deep = b"<testsuite name='s'>" * 20_000
    cases, problem = parse_junit(deep + b"<testcase name='x'/>" + b"</testsuite>" * 20_000)
    assert problem is None
    assert len(cases) == 1


def test_numbers_that_are_none_are_nothing() -> None:
    (case,), _ = parse_junit(b"<testcase name='x' time='nan'/>")
    assert case.duration_s == 0.0


def test_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "real.xml").write_text("<testcase name='x'/>")
    (tmp_path / "link.xml").symlink_to("real.xml")
    os.mkfifo(tmp_path / "pipe.xml")
    assert read_junit(tmp_path / "real.xml")[1] is None
    for name in ("link.xml", "pipe.xml", "none.xml"):
        cases, problem = read_junit(tmp_path / name)
        assert cases == ()
        assert (problem or "").startswith(f"{name} cannot be read: ")
