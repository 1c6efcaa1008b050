"""The settings, wherever they come from, and the folder that the program keeps in a project."""

import os
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from cdd_agent.config.settings import (
    CONFIG_FILE,
    GreenSettings,
    Settings,
    change_file,
    find_sources,
    parse_settings,
    read_offer,
)
from cdd_agent.config.settings import load as load_if
from cdd_agent.config.trust import Approvals
from cdd_agent.errors import DocumentError, UsageError
from tests.fakes.approval import Answers

NOBODY: Mapping[str, str] = {}


def write(project: Path, text: str) -> None:
    (project / CONFIG_FILE).parent.mkdir()
    (project / CONFIG_FILE).write_text(text, encoding="utf-8")


def load(project: Path, *, environment: Mapping[str, str] = NOBODY, model: str | None = None) -> Settings:
    """The settings, the project's file approved."""
    return load_if(project, allows=lambda offer: True, environment=environment, model=model)


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path, environment={}) == Settings()


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    write(tmp_path, "model: from-file\nmax_attempts: 2\n")
    assert load(tmp_path, environment={}).model == "from-file"
    assert load(tmp_path, environment={"TDD_MODEL": "alias"}).model == "alias"
    assert load(tmp_path, environment={"CDD_MODEL": "variable", "TDD_MODEL": "alias"}).model == "variable"
    assert load(tmp_path, environment={"CDD_MODEL": "variable"}, model="flag").model == "flag"
    engines = load(tmp_path, environment={"CDD_SYMBOLS": "serena", "CDD_SERENA": "/opt/serena"})
    assert (engines.symbols, engines.serena) == ("serena", "/opt/serena")
    assert load(tmp_path, environment={"CDD_MAX_RETRIES": "5"}).max_attempts == 6
    assert load(tmp_path, environment={"TDD_MAX_RETRIES": "0"}).max_attempts == 1


def test_a_value_that_is_no_choice_is_refused_with_the_choices(tmp_path: Path) -> None:
    choices = "symbols must be one of auto, index, ty, serena, not 'pyright'"
    with pytest.raises(UsageError, match=f"CDD_SYMBOLS=pyright is not valid: {choices}"):
        load(tmp_path, environment={"CDD_SYMBOLS": "pyright"})
    for line, said in (
        ("symbols: pyright", choices),
        ("green:\n  style: short", "green.style must be one of minimal, "),
    ):
        with pytest.raises(DocumentError, match=said):
            parse_settings(line.encode())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("modle: x\n", "modle"),
        ("max_attempts: many\n", "max_attempts"),
        ("max_attempts: 0\n", "max_attempts must be above 0"),
        ("max_attempts: -1\n", "max_attempts must be above 0, not -1"),
        ("test_timeout_s: .inf\n", "test_timeout_s must be at most 1000000000, not inf"),
        ("test_timeout_s: .nan\n", "test_timeout_s must be at most 1000000000, not nan"),
        ("model: a\nmax_turns: 3\nmodel: b\n", "line 3: the key 'model' occurs twice"),
        ("refactor: sometimes\n", "refactor"),
        ("green:\n  max_iteration: 3\n", "green.max_iteration"),
        ("green:\n  max_iterations: 0\n", "max_iterations must be above 0"),
        ("green:\n  style: baroque\n", "green.style"),
        ("green:\n  run_after_each_file: 1\n", "green.run_after_each_file"),
        ("green: all\n", "green"),
        ("- model\n", "name: value"),
        ("model: [\n", "line"),
        ("examiner: 9\n", "auto, off or a number up to 8"),
        ("examiner: sometimes\n", "examiner"),
        ("base_url: http://elsewhere\n", "base_url"),
        ("model: a\x00b\n", "#x0000"),
    ],
)
def test_an_invalid_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    write(tmp_path, text)
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, environment={})
    assert "config.yaml" in caught.value.happened
    assert told in caught.value.happened


@pytest.mark.parametrize(("text", "most"), [("auto", 8), ("off", 0), ('"off"', 0), ("3", 3)])
def test_the_examiner_has_a_number_of_examples(tmp_path: Path, text: str, most: int) -> None:
    write(tmp_path, f"examiner: {text}\n")
    assert load(tmp_path, environment={"CDD_MODEL": "m"}).examples == most


def test_an_invalid_variable_is_named(tmp_path: Path) -> None:
    for wrong in ("x", "-1", "1.5"):
        with pytest.raises(UsageError, match=f"CDD_MAX_RETRIES={wrong} is not valid: expected the number of retries"):
            load(tmp_path, environment={"CDD_MAX_RETRIES": wrong})


def test_an_empty_variable_is_as_good_as_none(tmp_path: Path) -> None:
    assert load(tmp_path, environment={"CDD_MODEL": "", "CDD_MAX_RETRIES": ""}) == Settings()


# What a repository could bring.


def test_a_file_counts_only_if_it_is_allowed(tmp_path: Path) -> None:
    write(tmp_path, "max_attempts: 9\n")
    assert load_if(tmp_path, allows=lambda offer: False, environment={}) == Settings()
    assert load_if(tmp_path, allows=lambda offer: True, environment={}).max_attempts == 9


def test_a_file_that_is_not_allowed_is_not_even_parsed(tmp_path: Path) -> None:
    write(tmp_path, "model: [\n")
    assert load_if(tmp_path, allows=lambda offer: False, environment={}) == Settings()


def test_what_is_offered_is_the_whole_file_and_every_line_that_says_something(tmp_path: Path) -> None:
    assert read_offer(tmp_path) is None
    write(tmp_path, "model: x\n\n# why\nmax_turns: 3\n")
    offer = read_offer(tmp_path)
    assert offer is not None
    assert offer.shown == ("model: x", "# why", "max_turns: 3")
    assert offer.content == (tmp_path / CONFIG_FILE).read_bytes()


def test_the_environment_and_the_command_line_need_no_approval(tmp_path: Path) -> None:
    write(tmp_path, "max_attempts: 9\n")
    told = Answers(False)
    loaded = load_if(tmp_path, allows=lambda offer: told(offer, False), environment={"CDD_MAX_RETRIES": "4"}, model="m")
    assert (loaded.max_attempts, loaded.model) == (5, "m")


@pytest.mark.parametrize(("value", "is_reported"), [("false", True), ("true", False)])
def test_run_tree_of_earlier_versions_is_read_without_effect(tmp_path: Path, value: str, *, is_reported: bool) -> None:
    write(tmp_path, f"run_tree: {value}\nmax_turns: 3\n")
    notices: list[str] = []
    loaded = load_if(tmp_path, allows=lambda offer: True, environment={}, report=notices.append)
    assert loaded == Settings(max_turns=3)
    assert [text.partition(":")[0] for text in notices] == ["`run_tree"] * is_reported


@pytest.mark.parametrize("path", ["bin/serena", "~user/serena", "serena"])
def test_serena_is_named_by_an_absolute_path(path: str) -> None:
    with pytest.raises(ValueError, match=f"serena must be an absolute path, not {path}"):
        Settings(serena=path)
    assert Settings(serena="~/serena/bin/serena").symbols == "auto"


def test_every_setting_is_a_limit_or_the_model_s_id() -> None:
    """Whoever adds one decides here that a stranger's repository may set it."""
    assert {field.name for field in fields(Settings)} == {
        *("model", "max_tokens", "max_attempts", "max_turns", "max_calls_per_turn", "max_drafts", "refactor"),
        *("test_timeout_s", "test_reruns", "evidence_timeout_s", "examiner", "examiner_model", "architect_model"),
        *(f"max_{what}_per_{scope}" for what in ("tokens", "usd", "calls", "minutes") for scope in ("step", "ticket")),
        *("compact_at_percent", "edit_format", "approvals", "editing_mode", "green"),
        *("framework", "test_command", "accept_unstructured", "run_tree_copy_mb", "run_tree_copy_files"),
        *("worktree_setup", "context_tokens", "diffs", "hooks", "run_trees_mb"),
        *("symbols", "serena"),
    }


@pytest.mark.parametrize("name", ["config.yaml", "."])
def test_settings_behind_a_link_are_an_error(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.yaml").write_text("max_attempts: 9\n")
    project = tmp_path / "project"
    project.mkdir()
    if name == ".":
        (project / ".cdd").symlink_to(elsewhere)
    else:
        (project / ".cdd").mkdir()
        (project / ".cdd" / name).symlink_to(elsewhere / name)
    with pytest.raises(DocumentError, match=r"config\.yaml is not valid"):
        load(project)


def test_a_pipe_in_place_of_the_file_is_an_error_and_no_wait(tmp_path: Path) -> None:
    (tmp_path / ".cdd").mkdir()
    os.mkfifo(tmp_path / CONFIG_FILE)
    with pytest.raises(DocumentError, match="ordinary"):
        load(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "model: x\n" * 2_000,
        "- " * 7_000,
        "[" * 15_000,
        "{" * 15_000,
        "a: &a\n  k: v\nb: &b\n  <<:\n" + "  - *a\n" * 9 + "c:\n  <<:\n" + "  - *b\n" * 9,
        "model: !!python/object/apply:os.system ['touch mark']\n",
        "a: &a [1]\nmodel: *a\n",
        "max_turns: !!int ''\n",
        "max_turns: !!bool x\n",
        "max_turns: !!timestamp x\n",
        "test_timeout_s: 1" + "0" * 400 + "\n",
        "max_turns: 1" + "0" * 5000 + "\n",
        "model: 2000-01-01\n",
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_a_file_made_to_hurt_is_an_error_at_once(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    before = time.process_time()
    with pytest.raises(DocumentError):
        load(tmp_path)
    assert time.process_time() - before < 2


def test_the_section_of_green_has_settings_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "max_attempts: 2\ngreen:\n  max_iterations: 5\n  style: standard\n  include_docstrings: false\n")
    settings = load(tmp_path, environment={"CDD_MAX_RETRIES": "7"})
    assert settings.max_attempts == 8
    assert settings.green == GreenSettings(max_iterations=5, style="standard", include_docstrings=False)


@pytest.mark.parametrize(
    ("before", "name", "text", "after"),
    [
        ("refactor: never # mine\n", "model", "other", "refactor: never # mine\nmodel: other\n"),
        ("# max_turns: 20\n", "max_turns", "7", "max_turns: 7\n"),
        ("max_turns: 3\n# max_turns: 20\n", "max_turns", "default", "max_turns: 20\n# max_turns: 20\n"),
        ("# green:\n#   style: minimal\n", "green.style", "standard", "green:\n  style: standard\n"),
        (
            "green:\n  max_iterations: 3\n",
            "green.style",
            "standard",
            "green:\n  style: standard\n  max_iterations: 3\n",
        ),
        ("model: m", "green.style", "standard", "model: m\ngreen:\n  style: standard\n"),
        ("model: m", "test_command", "make test: all", "model: m\ntest_command: 'make test: all'\n"),
        ("", "examiner", "off", "examiner: false\n"),
        ("", "diffs", "off", "diffs: false\n"),
    ],
)
def test_one_line_of_the_file_is_changed(tmp_path: Path, *, before: str, name: str, text: str, after: str) -> None:
    write(tmp_path, before)
    change(tmp_path, name, text=text)
    assert (tmp_path / CONFIG_FILE).read_text(encoding="utf-8") == after


@pytest.mark.parametrize(
    ("before", "name", "text", "told"),
    [
        ("", "modle", "x", "'modle' is not a setting"),
        ("", "max_turns", "many", "'many' is not a value of max_turns: Expected `int`"),
        ("", "max_turns", "-1", "'-1' is not a value of max_turns: max_turns must be above 0"),
        ("green: {style: minimal}\n", "green.style", "standard", "not valid|does not find the line"),
        ("test_command: >\n  make\n  test\n", "test_command", "pytest", "not valid|does not find the line"),
    ],
)
def test_a_change_that_cannot_be_made_leaves_the_file(
    tmp_path: Path, *, before: str, name: str, text: str, told: str
) -> None:
    write(tmp_path, before)
    with pytest.raises(UsageError, match=told):
        change(tmp_path, name, text=text)
    assert (tmp_path / CONFIG_FILE).read_text(encoding="utf-8") == before


def test_a_file_that_the_user_has_not_approved_is_not_changed(tmp_path: Path) -> None:
    write(tmp_path, "model: theirs\n")
    with pytest.raises(UsageError, match="You have not approved"):
        change_file(tmp_path, "diffs", text="off", approvals=Approvals(tmp_path))


def change(project: Path, name: str, *, text: str) -> None:
    """Change a setting in the project's file, which the user has approved."""
    approvals, offer = Approvals(project), read_offer(project)
    assert offer is not None
    approvals.record(offer, approved=True)
    change_file(project, name, text=text, approvals=approvals)
    assert find_sources(project, allows=lambda new: approvals.find_decision(new) is True, environment={})[name]
