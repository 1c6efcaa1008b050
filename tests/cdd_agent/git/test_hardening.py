import os
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.git.hardening import (
    GitSetting,
    adopt,
    build_command,
    build_environment,
    build_overrides,
    build_settings,
    list_adopted,
    list_disabled_filters,
    parse_settings,
)
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitUnable
from cdd_agent.git.tree_store import TreeStore
from tests.fakes.cases import soak_after


def of(scope: str, key: str, value: str) -> GitSetting:
    return GitSetting(scope=scope, origin="file:x", key=key, value=value)


def test_a_listing_is_read_with_lines_equals_and_names_without_value() -> None:
    listing = "local\0file:.git/config\0filter.a=b.clean\nx\ny=z\0global\0file:/g\0core.bare\0"
    assert parse_settings(listing) == (
        GitSetting(scope="local", origin="file:.git/config", key="filter.a=b.clean", value="x\ny=z"),
        GitSetting(scope="global", origin="file:/g", key="core.bare", value=""),
    )


def test_commits_are_made_with_the_users_values_where_conditions_differ() -> None:
    shared, command = of("global", "user.name", "Dev"), of("command", "core.hookspath", "/dev/null")
    here = [shared, of("local", "commit.gpgsign", "true"), of("local", "core.hookspath", "evil"), command]
    here += [of("local", "hook.x.command", "evil"), of("local", "core.bare", "false")]
    user = [shared, of("local", "user.email", "work@example.org"), of("local", "core.bare", "true"), command]
    assert list_adopted(here, user, hooks_folder="/r/hooks") == (
        ("commit.gpgsign", "false"),
        ("core.hookspath", "/r/hooks"),
        ("hook.x.enabled", "false"),
        ("user.email", "work@example.org"),
    )
    assert list_adopted(user, user, hooks_folder="/r/hooks") == ()
    assert {setting.key for setting in adopt(here, user)} == {"core.bare", "user.name", "user.email", "core.hookspath"}


def test_a_program_that_the_user_has_under_a_condition_of_the_repository_is_replaced() -> None:
    user = [of("local", "gpg.program", "evil"), of("local", "commit.gpgsign", "true")]
    adopted = list_adopted([], user, hooks_folder="/r/hooks")
    settings = build_settings(adopt([], user), hooks=True, signs=True, adopted=adopted)
    assert [value for key, value in settings if key == "gpg.program"] == ["evil", "gpg"]
    assert ("commit.gpgsign", "true") in settings
    unsigned = build_settings(adopt([], user), hooks=False, signs=False, adopted=adopted)
    assert [value for key, value in unsigned if key.lower() == "commit.gpgsign"] == ["true", "false"]


@pytest.mark.parametrize("scope", ["local", "worktree"])
def test_a_program_of_the_repository_is_emptied_and_the_users_comes_back(scope: str) -> None:
    found = (
        of("global", "filter.lfs.clean", "git-lfs clean"),
        of("system", "credential.helper", "cache"),
        of("global", "credential.helper", "store"),
        of(scope, "filter.lfs.clean", "evil"),
        of(scope, "credential.helper", "!evil"),
        of(scope, "filter.mine.process", "evil"),
    )
    made = build_overrides(found)
    assert made == (
        ("filter.lfs.clean", ""),
        ("filter.lfs.clean", "git-lfs clean"),
        ("credential.helper", ""),
        ("credential.helper", "cache"),
        ("credential.helper", "store"),
        ("filter.mine.process", ""),
        ("filter.mine.required", "false"),
    )
    assert list_disabled_filters(found) == ("mine",)


def test_what_is_only_the_users_stays_as_it_is() -> None:
    assert build_overrides((of("global", "filter.lfs.clean", "git-lfs"), of("system", "gpg.program", "gpg2"))) == ()


@pytest.mark.parametrize(
    "command",
    [
        *("tools/filt", "./filt %f", "../x/filt", "sh tools/filt", "python3 -u filt.py", "env A=1 tools/filt"),
        *("cd x && ./y", "sh -c 'tools/filt \"$1\"'", "bash -ec 'cat | ./x'", "A=1 tools/filt", "cat|tools/filt"),
        *('"tools/my filt"', '"$(git rev-parse --show-toplevel)/filt"', "$PWD/filt", "`pwd`/filt", "!tools/filt"),
        *("/bin/sh filt", "'tools/x"),
    ],
)
def test_a_program_that_the_user_names_inside_the_work_tree_is_the_repositorys(command: str) -> None:
    found = (of("global", "filter.f.clean", command),)
    assert build_overrides(found) == (("filter.f.clean", ""), ("filter.f.required", "false"))
    assert list_disabled_filters(found) == ("f",)


@pytest.mark.parametrize(
    "command",
    [
        *("git-lfs clean -- %f", '"/usr/bin/python3" -m nbstripout', "sed s/a/b/g", "~/bin/filt", "$HOME/bin/filt"),
        *("diff-so-fancy | less --tabs=4 -RFX", "!f() { echo password=$(cat ~/.token); }; f", "sh /opt/filt %f", ""),
        *(
            "sh -c 'ssh-add -L | head -n1'",
            "jq --indent 1 .",
            "python3 ~/x.py tools/y",
            "http://proxy/a",
            "always",
            "-",
        ),
    ],
)
def test_other_programs_of_the_user_stay_in_force(command: str) -> None:
    assert build_overrides((of("global", "filter.f.clean", command),)) == ()


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("gpg.program", "gpg"),
        ("gpg.ssh.program", "ssh-keygen"),
        ("gpg.x509.program", "gpgsm"),
        ("submodule.a.b.update", "none"),
        ("protocol.ext.allow", "never"),
        ("core.sshcommand", ""),
        ("alias.st", ""),
        ("diff.a.textconv", ""),
    ],
)
def test_where_a_program_has_to_be_it_is_the_one_git_would_take(key: str, instead: str) -> None:
    assert build_overrides((of("local", key, "evil"),)) == ((key, instead),)


@pytest.mark.parametrize("key", ["user.name", "core.bare", "remote.origin.url", "branch.main.merge", "user.signingkey"])
def test_what_names_no_program_is_left_alone(key: str) -> None:
    assert build_overrides((of("local", key, "x"),)) == ()


def test_hooks_of_the_configuration_are_turned_off_whoever_set_them() -> None:
    found = (
        of("local", "hook.a.b.command", "evil"),
        of("local", "hook.a.b.event", "pre-commit"),
        of("global", "hook.c.command", "own"),
    )
    disabled = {("hook.a.b.enabled", "false"), ("hook.c.enabled", "false")}
    assert disabled <= set(build_settings(found, hooks=False, signs=False))
    assert disabled.isdisjoint(build_settings(found, hooks=True, signs=False))


def test_hooks_and_signing_take_part_only_where_they_are_asked_for() -> None:
    def last(key: str, *, hooks: bool, signs: bool) -> str | None:
        return dict(build_settings((), hooks=hooks, signs=signs)).get(key)

    assert last("core.hooksPath", hooks=False, signs=True) == "/dev/null"
    assert last("core.hooksPath", hooks=True, signs=True) is None
    assert last("commit.gpgSign", hooks=False, signs=False) == "false"
    assert last("commit.gpgSign", hooks=False, signs=True) is None
    assert last("core.fsmonitor", hooks=True, signs=True) == "false"


def test_flags_stand_before_those_of_the_caller() -> None:
    assert build_command(("diff", "--cached")) == [
        *("git", "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--cached")
    ]
    assert build_command(("rev-parse", "HEAD")) == ["git", "rev-parse", "HEAD"]


def test_of_the_users_variables_only_a_few_steer_git() -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/home/ada",
        "ANTHROPIC_API_KEY": "secret",
        "GIT_DIR": "/elsewhere",
        "GIT_INDEX_FILE": "/elsewhere/index",
        "GIT_CONFIG_PARAMETERS": "'core.fsmonitor=evil'",
        "GIT_CONFIG_COUNT": "9",
        "GIT_EXTERNAL_DIFF": "evil",
        "GIT_SSH_COMMAND": "evil",
        "GIT_EDITOR": "evil",
        "SSH_ASKPASS": "evil",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_CONFIG_GLOBAL": "/home/ada/other",
    }
    made = build_environment(given, settings=(("a.b=c.d", "x"),), hooks=False)
    assert {name for name in made if name in given} == {
        *("PATH", "HOME", "GIT_AUTHOR_NAME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_COUNT", "GIT_EDITOR")
    }
    assert (made["GIT_CONFIG_COUNT"], made["GIT_CONFIG_KEY_0"], made["GIT_CONFIG_VALUE_0"]) == ("1", "a.b=c.d", "x")
    assert made["GIT_EDITOR"] == "true"
    assert made["GIT_LITERAL_PATHSPECS"] == made["GIT_NO_LAZY_FETCH"] == "1"
    assert made["GIT_ALLOW_PROTOCOL"] == "none"


def test_hooks_inherit_nothing_that_would_bend_the_git_they_use() -> None:
    made = build_environment({}, settings=(), hooks=True)
    assert not {"GIT_DIR", "GIT_WORK_TREE", "GIT_LITERAL_PATHSPECS", "GIT_ALLOW_PROTOCOL", "GIT_NO_LAZY_FETCH"} & set(
        made
    )


def armed(root: Path, configuration: Path) -> Path:
    """A filter in ``configuration``, files that it is for, and the mark that it leaves when it is run."""
    mark = root / "mark"
    with configuration.open("a") as stream:
        stream.write(f'[filter "x"]\n\tclean = "touch {mark}; cat"\n\trequired = true\n')
    (root / "d").mkdir()
    (root / "d" / ".gitattributes").write_text("*.txt filter=x\n")
    (root / "d" / "b.txt").write_text("b\n")
    return mark


def with_another_folder(root: Path) -> Path:
    """Copies the repository's folder, with a filter in the copy; the mark that the filter leaves when it is run."""
    shutil.copytree(root / ".git", root / "evil")
    return armed(root, root / "evil" / "config")


def test_a_common_folder_that_is_named_later_is_never_asked(repository: Repository) -> None:
    """What is in a file ``.git/commondir`` would make git read another folder's configuration, and write its refs."""
    root = repository.root
    snapshots = TreeStore(repository)
    snapshots.take("refs/cdd/a", message="before")
    mark = with_another_folder(root)
    (root / ".git" / "commondir").write_text("../evil\n")
    with pytest.raises(GitUnable, match="commondir names another repository"):
        snapshots.take("refs/cdd/b", message="after")
    assert not mark.exists()
    assert not (root / "evil" / "refs" / "cdd" / "b").exists()


def test_nor_is_its_configuration_where_it_is_named_between_the_look_and_the_call(
    repository: Repository, around_git: Callable[..., None]
) -> None:
    snapshots = TreeStore(repository)
    snapshots.take("refs/cdd/a", message="before")
    mark = with_another_folder(repository.root)
    named = shlex.quote(str(repository.root / ".git" / "commondir"))
    around_git(before=f"echo ../evil > {named}", after=f"rm {named}")
    snapshots.take("refs/cdd/b", message="after")
    assert not mark.exists()


def test_a_common_folder_that_cannot_be_read_is_another(repository: Repository) -> None:
    assert repository.read_head() is not None
    os.mkfifo(repository.root / ".git" / "commondir")
    with pytest.raises(GitUnable, match="commondir names another repository"):
        repository.read_head()


def test_a_configuration_of_the_work_tree_that_comes_later_is_read_first(repository: Repository) -> None:
    root = repository.root
    repository.git("config", "extensions.worktreeConfig", "true")
    snapshots = TreeStore(repository)
    snapshots.take("refs/cdd/a", message="before")
    mark = armed(root, root / ".git" / "config.worktree")
    snapshots.take("refs/cdd/b", message="after")
    assert not mark.exists()


def test_a_configuration_of_the_users_that_comes_later_is_heard(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    snapshots = TreeStore(repository)
    snapshots.take("refs/cdd/a", message="before")
    mark = armed(repository.root, repository.location.common_dir / "config")
    snapshots.take("refs/cdd/b", message="the repository's filter is not run")
    assert not mark.exists()
    own.write_text('[filter "x"]\n\tclean = tr b c\n')
    (repository.root / "d" / "b.txt").write_text("bb\n")
    kept = snapshots.take("refs/cdd/c", message="the user's is")
    assert repository.git("cat-file", "blob", f"{kept.commit}:d/b.txt") == "cc\n"


@pytest.mark.parametrize("key", ["mailmap.file", "core.attributesFile", "core.excludesFile"])
@soak_after(1, "kind", ["endless", "pipe"])
def test_a_file_without_an_end_that_the_repository_names_is_not_read(
    repository: Repository, tmp_path: Path, *, key: str, kind: str
) -> None:
    path = Path("/dev/zero")
    if kind == "pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    repository.git("config", key, str(path))
    began = time.monotonic()
    assert repository.git("log", ("-1", "--format=%aN")).strip() == "Ada"
    assert repository.list_uncommitted() == ()
    repository.git("check-attr", ("--all", "--"), "a.txt")
    assert time.monotonic() - began < 10


def test_an_ordinary_file_that_the_repository_names_is_read(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "ignored").write_text("*.mine\n")
    repository.git("config", "core.excludesFile", str(tmp_path / "ignored"))
    (repository.root / "a.mine").write_text("")
    assert repository.list_uncommitted() == ()
