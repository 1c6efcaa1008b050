import pytest

from cdd_agent.untrusted.paths import FILES, FOLDERS, explain_protection


@pytest.mark.parametrize("name", [*FILES, *FOLDERS, *(f"{folder}/deep/er/hook" for folder in FOLDERS)])
def test_what_a_hook_runner_is_told_is_written_by_no_agent(name: str) -> None:
    assert explain_protection(name) is not None
    assert explain_protection(f"sub/{name.upper()}") is not None


def test_lefthook_is_known_by_every_name_it_looks_for() -> None:
    kinds = ("yml", "yaml", "toml", "json", "jsonc")
    for kind in kinds:
        for name in ("lefthook", ".lefthook", ".config/lefthook"):
            assert {f"{name}.{kind}", f"{name}-local.{kind}"} <= set(FILES)
