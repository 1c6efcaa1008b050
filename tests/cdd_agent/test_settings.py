from pathlib import Path

import pytest

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.settings import CONFIG_FILE, Settings, load, private_folder


def write(project: Path, text: str) -> None:
    (project / CONFIG_FILE).parent.mkdir()
    (project / CONFIG_FILE).write_text(text, encoding="utf-8")


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path, environment={}) == Settings()


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    write(tmp_path, "model: from-file\nmax_attempts: 2\n")
    assert load(tmp_path, environment={}).model == "from-file"
    assert load(tmp_path, environment={"TDD_MODEL": "alias"}).model == "alias"
    assert load(tmp_path, environment={"CDD_MODEL": "variable", "TDD_MODEL": "alias"}).model == "variable"
    assert load(tmp_path, environment={"CDD_MODEL": "variable"}, model="flag").model == "flag"
    assert load(tmp_path, environment={"CDD_MAX_RETRIES": "5"}).max_attempts == 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("modle: x\n", "modle"),
        ("max_attempts: many\n", "max_attempts"),
        ("max_attempts: 0\n", "max_attempts must be above 0"),
        ("refactor: sometimes\n", "refactor"),
        ("- model\n", "name: value"),
        ("model: [\n", "line"),
        ("base_url: http://elsewhere\n", "base_url"),
        ("model: a\x00b\n", "special characters"),
    ],
)
def test_an_invalid_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    write(tmp_path, text)
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, environment={})
    assert "config.yaml" in caught.value.happened
    assert told in caught.value.happened


def test_an_invalid_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="CDD_MAX_RETRIES=x"):
        load(tmp_path, environment={"CDD_MAX_RETRIES": "x"})


def test_the_private_folder_keeps_itself_out_of_git(tmp_path: Path) -> None:
    folder = private_folder(tmp_path)
    assert (folder / ".gitignore").read_text() == "*\n!config.yaml\n"
    (folder / ".gitignore").write_text("the user's\n")
    private_folder(tmp_path)
    assert (folder / ".gitignore").read_text() == "the user's\n"


def test_an_empty_variable_is_as_good_as_none(tmp_path: Path) -> None:
    assert load(tmp_path, environment={"CDD_MODEL": "", "CDD_MAX_RETRIES": ""}) == Settings()
