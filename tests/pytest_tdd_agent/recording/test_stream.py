import json
import os
import resource
from pathlib import Path

import pytest

from pytest_tdd_agent.recording.spool import Stream, find_running_tests


def lines(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_each_event_is_a_line_that_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("an earlier run")
    stream = Stream(path)
    stream.send("begin", nodeid="tests/test_é.py::t[\ud800]")
    assert lines(path) == [{"event": "begin", "nodeid": "tests/test_é.py::t[\ud800]"}]
    stream.send("end")
    assert lines(path)[1:] == [{"event": "end"}]
    stream.close()


def test_the_stream_of_a_run_that_goes_on_does_not_get_into_that_of_a_later_one(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    first = Stream(path)
    second = Stream(path)
    for stream, event in ((first, "one"), (second, "two")):
        stream.send(event)
        stream.close()
    assert lines(path) == [{"event": "two"}]


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, hard))
    try:
        stream = Stream(tmp_path / "s.jsonl")
        stream.send("one")
        stream.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert lines(tmp_path / "s.jsonl") == [{"event": "one"}]


def test_a_closed_descriptor_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    stream = Stream(path)
    stream.send("one")
    stream.close()
    stream.send("two")
    assert lines(path) == [{"event": "one"}, {"event": "two"}]
    stream.close()


def test_what_a_test_does_to_the_modules_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.jsonl"
    stream = Stream(path)
    with monkeypatch.context() as patched:
        for name in ("write", "open", "getpid"):
            patched.delattr(os, name)
        patched.delattr(json, "dumps")
        stream.send("one")
    stream.close()
    assert lines(path) == [{"event": "one"}]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    stream = Stream(path)
    child = os.fork()
    if child == 0:
        stream.send("child")
        os._exit(0)
    os.waitpid(child, 0)
    stream.send("parent")
    stream.close()
    assert lines(path) == [{"event": "parent"}]


def test_a_test_does_not_repeat_the_node_id_of_its_begin(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "s.jsonl")
    stream.begin('a.py::t[é"]')
    stream.end('a.py::t[é"]', "passed")
    stream.begin("a.py::u")
    stream.begin("a.py::v")
    stream.end("a.py::u", "failed")
    stream.close()
    assert lines(tmp_path / "s.jsonl") == [
        {"event": "begin", "nodeid": 'a.py::t[é"]'},
        {"event": "test", "outcome": "passed"},
        {"event": "begin", "nodeid": "a.py::u"},
        {"event": "begin", "nodeid": "a.py::v"},
        {"event": "test", "nodeid": "a.py::u", "outcome": "failed"},
    ]
    assert find_running_tests((tmp_path / "s.jsonl").read_bytes().splitlines()) == ("a.py::v",)


def test_a_stream_that_broke_off_within_a_line_can_be_read() -> None:
    assert find_running_tests([b'{"event":"begin","nodeid":"a"}', b'{"event":"te']) == ("a",)


@pytest.mark.parametrize(
    "line", [b"[]", b"null", b'"a"', b"[" * 100_000, b"9" * 5000, b'{"event":"begin","nodeid":["a"]}', b"\xff", b"{}"]
)
def test_a_line_that_a_test_wrote_into_the_stream_is_passed_over(line: bytes) -> None:
    assert find_running_tests([b'{"event":"begin","nodeid":"a"}', line]) == ("a",)


def test_two_files_whose_descriptors_were_closed_do_not_mix(tmp_path: Path) -> None:
    first, second = Stream(tmp_path / "first"), Stream(tmp_path / "second")
    first.close()
    second.close()
    second.send("two")
    first.send("one")
    second.send("two")
    assert lines(tmp_path / "first") == [{"event": "one"}]
    assert lines(tmp_path / "second") == [{"event": "two"}, {"event": "two"}]
    first.close()
    second.close()


def test_a_test_that_runs_again_is_running_until_its_retry() -> None:
    again = [
        b'{"event":"begin","nodeid":"a"}',
        b'{"event":"test","outcome":"failed"}',
        b'{"event":"begin","nodeid":"a"}',
    ]
    assert find_running_tests(again) == ("a",)
    assert find_running_tests([*again, b'{"event":"retry","nodeid":"a","tries":["passed"]}']) == ()
