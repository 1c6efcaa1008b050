from collections.abc import Collection

import pytest

from cdd_agent.events import Change, Notice
from cdd_agent.tdd.kinds import FileKinds, find_started
from cdd_agent.tdd.tools import make_tools
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.testrun.frameworks.catalog import CARGO, GO, JEST
from cdd_agent.testrun.frameworks.framework import Framework
from cdd_agent.testrun.suite import Conventions, ProjectLayout
from cdd_agent.work.wording import explain
from tests.fakes.model import ScriptedModel
from tests.fakes.project import CODE, Project, item, red, runs, writes

TRACKED = {
    "README.md": "",
    "CONTRIBUTING.md": "",
    "AGENTS.md": "",
    "Makefile": "",
    "noxfile.py": "import nox",
    "setup.py": "import shop",
    "requirements.txt": "requests",
    "schema.sql": "",
    "pyproject.toml": "",
    ".github/workflows/ci.yml": "",
    "prices.py": "import rates",
    "rates.py": "",
    "wc.py": "",
    "docs/guide.md": "",
    "docs/README.md": "",
    "src/shop/__init__.py": "",
    "src/shop/cart.py": "open('schema.sql')",
    "src/shop/data.json": "{}",
    "src/shop/page.html": "",
    "tests/test_cart.py": "from shop.cart import Cart\nimport prices, sys\nargv = [sys.executable, 'wc.py']",
    "tests/data/cart.json": "{}",
    "web/package.json": "{}",
    "web/vite.config.js": "",
    "web/src/app.js": "",
}
KINDS = FileKinds(tracked=TRACKED, users=TRACKED)

OBEYED = (
    # shells, editors, version managers
    *(".rvmrc", ".Rprofile", ".exrc.lua", ".envrc", ".bashrc", ".vscode/tasks.json", "src/.vscode/settings.json"),
    *(
        ".tool-versions",
        "mise.toml",
        "src/mise.toml",
        "shop.code-workspace",
        ".ideavimrc",
        "\u200b.envrc",
        "\uff0eenvrc",
    ),
    # build tools and task runners
    *(
        ".cargo/config.toml",
        "justfile",
        "src/justfile",
        "Tiltfile",
        "Procfile",
        "noxfile2.py",
        "tasks.py",
        "fabfile.py",
    ),
    *("dodo.py", "gulpfile.js", "web/gulpfile.js", "build.rs", "src/build.rs", "SConstruct", "src/Makefile", "wscript"),
    *("GNUmakefile", "src/shop/package.json", "tests/data/package.json", "tox.ini", "tox.toml", "src/tox.ini"),
    *(
        "Rakefile",
        "Dockerfile",
        "docker-compose.yml",
        "src/docker-compose.yml",
        "Vagrantfile",
        "magefile.go",
        "pom.xml",
    ),
    *("bin/deploy", "scripts/post-install.sh", "scripts/install.py", "environment.yml", "requirements-dev.txt"),
    # Python, and what tests load
    *("setup2.py", "manage.py", "web/setup.py", "src/setup.cfg", "gunicorn.conf.py", "src/conftest.py", "conftest.py"),
    *(
        "src/Shop.csproj",
        "src/CMakeLists.txt",
        "src/rules.mk",
        "shop.pth.txt",
        "tests/data/settings.ini",
        "ConfTest.py",
        "pytest.ini",
    ),
    # CI and hosting
    *("cloudbuild.yaml", ".teamcity/settings.kts", "Jenkinsfile", "azure-pipelines.yml", "bitbucket-pipelines.yml"),
    *("netlify.toml", "vercel.json", "fly.toml", "app.json", "render.yaml", "ci/pipeline.yml", "codecov.yml"),
    # hooks and agents
    *("lefthook.yml", "husky.config.js", "CLAUDE.md", "src/AGENTS.md", "docs/CLAUDE.md", "GEMINI.md", "agents.md"),
    *(
        "AGENTS.override.md",
        "CLAUDE.local.md",
        "gemini.md",
        "docs/copilot-instructions.md",
        "docs/skill.md",
        "crush.md",
    ),
    *("API-AGENTS.md", "docs/Claude_Notes.rst", "test-list.md", "Test-List.md", "AGENTS.txt", "docs/agent.md"),
    *(".cursor/rules", ".cursorrules", "opencode.json", "skills/deploy/SKILL.md", ".aider.conf.yml", "docs/AGENTS.md"),
)


def list_files(project: Project, commit: str) -> list[str]:
    return project.git("show", "--format=", "--name-only", commit).splitlines()


def find_free(kinds: FileKinds, paths: Collection[str]) -> list[str]:
    return [path for path in paths if kinds.explain(path, "created") is None]


def test_no_new_file_that_programs_obey_lands_without_a_question() -> None:
    assert len(OBEYED) > 80
    assert find_free(KINDS, OBEYED) == []


HONEST = (
    *("src/shop/order.py", "src/shop/api/__init__.py", "src/shop/api/views.py", "src/ledger/__init__.py"),
    *(
        "src/shop/more.json",
        "src/shop/pages/index.html",
        "tests/test_order.py",
        "tests/api/test_views.py",
        "tests/help.py",
    ),
    *("tests/conftest.py", "tests/data/order.json", "test_flat.py", "docs/howto.md", "docs/how/to.md", "NOTES.md"),
    *("HISTORY.md", "docs/api/README.md", "tests/__init__.py", "web/src/page.js", "news.rst"),
    *(
        "src/shop/py.typed",
        "src/shop/cart.pyi",
        "prices.pyi",
        "TROUBLESHOOTING.md",
        "MIGRATION_GUIDE.md",
        "QUICKSTART.md",
    ),
    *("docs/INSTALLATION.md", "docs/clauses.md", "docs/agenda.md"),
)


def test_sources_tests_data_and_documents_beside_their_like_land() -> None:
    assert [path for path in HONEST if KINDS.explain(path, "created")] == []


def test_a_file_lands_that_the_plan_names_or_the_developer_allows() -> None:
    allowed: set[str] = set()
    kinds = FileKinds(tracked=TRACKED, named=frozenset({"justfile", ".github/workflows/ci.yml"}), allowed=allowed)
    assert kinds.explain("justfile") is None
    assert kinds.explain(".github/workflows/ci.yml") is None
    assert kinds.explain("sub/justfile") is not None
    assert kinds.explain("Tiltfile") is not None
    allowed.add("Tiltfile")
    assert kinds.explain("Tiltfile") is None


def test_a_file_that_the_plan_names_makes_others_of_its_kind_usual_beside_it() -> None:
    kinds = FileKinds(tracked=["README.md"], named=frozenset({"src/shop/cart.py", "tests/test_cart.py"}))
    assert find_free(kinds, ["src/shop/__init__.py", "tests/__init__.py", "setup.py", "src/shop/x.yml"]) == [
        "src/shop/__init__.py",
        "tests/__init__.py",
    ]


@pytest.mark.parametrize(
    ("path", "waits"),
    [
        *((path, False) for path in ("prices.py", "rates.py", "wc.py", "schema.sql", "README.md", "src/shop/cart.py")),
        *((path, False) for path in ("docs/guide.md", "CONTRIBUTING.md", "web/src/app.js", "tests/data/cart.json")),
        *((path, True) for path in ("noxfile.py", "requirements.txt", "AGENTS.md", ".github/workflows/ci.yml")),
        *((path, True) for path in ("web/vite.config.js",)),
    ],
)
def test_a_file_in_a_root_may_change_if_tests_use_it(path: str, *, waits: bool) -> None:
    used = FileKinds(tracked=TRACKED, users={**TRACKED, "tests/test_sql.py": "open('schema.sql')"})
    for kind in ("modified", "deleted"):
        assert (used.explain(path, kind) is not None) == waits, kind


def test_no_step_changes_a_plan_that_would_name_more() -> None:
    kinds = FileKinds(tracked=["tickets/a/plan.md", "tickets/a/spec.yaml", "app/tickets/views.py", "app/plan.md"])
    for path in ("tickets/a/plan.md", "tickets/b/plan.md", "app/specs/Tickets/b/Spec.yaml"):
        assert kinds.explain(path) is not None, path
    assert find_free(kinds, ["app/tickets/more.py", "app/b/plan.md"]) == ["app/tickets/more.py", "app/b/plan.md"]


def test_settings_that_are_deleted_or_new_wait_whatever_they_say() -> None:
    assert KINDS.explain("pyproject.toml", "deleted") is not None
    assert KINDS.explain("pyproject.toml", "modified") is None, "its content decides"
    assert KINDS.explain("src/shop/pyproject.toml") is not None


def test_a_module_in_the_root_is_free_if_a_test_imports_it() -> None:
    for text in ("import atomic", "from atomic import a", "import os, atomic as b", ">>> import atomic"):
        assert FileKinds(tracked=[], users={"tests/test_a.py": text}).explain("atomic.py") is None, text
    for text in ("import atomics", "from x import atomic", "import x.atomic", "'atomic'", "# atomic"):
        assert FileKinds(tracked=[], users={"tests/test_a.py": text}).explain("atomic.py") is not None, text
    package = FileKinds(tracked=[], users={"tests/test_a.py": "from geometry.areas import area"})
    assert find_free(package, ["geometry/__init__.py", "geometry/areas.py", "geometry/Makefile", "other/a.py"]) == [
        "geometry/__init__.py",
        "geometry/areas.py",
    ]


def test_a_module_in_the_root_is_free_if_a_test_loads_it_by_name() -> None:
    for text in (
        "import_module('atomic')",
        'runpy.run_module("atomic")',
        "run_path('atomic.py')",
        "__import__('atomic')",
    ):
        assert FileKinds(tracked=[], users={"tests/test_a.py": text}).explain("atomic.py") is None, text


def test_a_document_that_names_a_file_does_not_make_it_used() -> None:
    users = {
        "tests/test_readme.py": "open('README.md')",
        "README.md": "Run `justfile`, 'Procfile'.\n>>> import atomic\n",
    }
    tracked = {**users, "justfile": "", "Procfile": "", "atomic.py": "", "tests/test_a.py": "# see `justfile`"}
    kinds = FileKinds(tracked=tracked, users=tracked)
    assert [path for path in tracked if kinds.explain(path, "modified")] == ["justfile", "Procfile"]


def test_a_document_for_people_may_change_whatever_its_name() -> None:
    free = ("INSTALLATION.md", "LICENSE", "LICENSE.txt", "NOTICE", "RULES.md", "docs/FLOW.md")
    waits = ("AGENTS.md", "docs/CLAUDE.local.md", "GEMINI.md", "docs/SKILL.md", "test-list.md", "requirements.txt")
    kinds = FileKinds(tracked=[*free, *waits])
    assert [path for path in (*free, *waits) if kinds.explain(path, "modified")] == list(waits)


def test_a_file_that_becomes_a_program_waits() -> None:
    tracked = ["src/a.sh", "src/b.sh", "tests/test_a.py", "bin/run.sh"]
    kinds = FileKinds(tracked=tracked, programs=["src/b.sh"], named=frozenset({"bin/run.sh"}))
    changes = [Change(path=path, kind="modified") for path in tracked]
    new = [Change(path=path, kind="created") for path in ("src/c.sh", "tests/test_b.py")]
    programs = [change.path for change in (*changes, *new)]
    assert kinds.find_waiting([*changes, *new]) == {}
    waiting = kinds.find_waiting([*changes, *new], programs=programs)
    assert waiting.keys() == {"src/a.sh", "tests/test_a.py", "tests/test_b.py"}


def test_what_git_may_start_waits_apart_from_tests_and_documents() -> None:
    paths = ["githooks/pre-commit", "tools/check.sh", "tests/test_cart.py", "README.md"]
    kinds = FileKinds(tracked=paths, is_of_git=lambda path: path in paths)
    assert [path for path in paths if kinds.explain(path, "modified")] == paths[:2]


def test_a_reason_shows_no_control_character_of_a_name() -> None:
    for path in (".\x1b[2Jrc", "src/shop/a.\x1b[2J"):
        why = KINDS.explain(path)
        assert why is not None
        assert "\x1b" not in explain(why)


def test_a_link_waits_unless_the_plan_names_it() -> None:
    change = Change(path="src/shop/order.py", kind="created")
    assert KINDS.find_waiting([change]) == {}
    assert KINDS.find_waiting([change], links=["src/shop/order.py"]).keys() == {"src/shop/order.py"}
    named = FileKinds(tracked=TRACKED, named=frozenset({"src/shop/order.py"}))
    assert named.find_waiting([change], links=["src/shop/order.py"]) == {}


@pytest.mark.parametrize(
    ("framework", "free", "waits"),
    [
        (JEST, ["product.test.js", "sum.js", "lib/sum.js"], ["gulpfile.js", "jest.config.js", "package.json"]),
        (CARGO, ["src/product.rs", "tests/product.rs"], ["build.rs", "rustfmt.toml", "Cargo.lock"]),
    ],
    ids=["jest", "cargo"],
)
def test_other_languages_have_the_same_rule(framework: Framework, free: list[str], waits: list[str]) -> None:
    conventions = Conventions(framework=framework.name, is_test=framework.is_test, list_names=lambda *_: ())
    tracked = {"sum.test.js": "const sum = require('./sum')", "lib/a.js": "", "tests/sum.rs": "", "src/lib.rs": ""}
    kinds = FileKinds(tracked=tracked, users=tracked, layout=ProjectLayout(conventions=conventions))
    assert find_free(kinds, [*free, *waits]) == free


def test_the_files_of_a_package_in_go_need_no_import() -> None:
    conventions = Conventions(framework="go", is_test=GO.is_test, list_names=lambda *_: ())
    kinds = FileKinds(tracked=["go.mod", "sum_test.go", "main.go"], layout=ProjectLayout(conventions=conventions))
    assert find_free(kinds, ["sum.go", "sum2_test.go", "cmd/main.go", "go.work", "gen.sh"]) == [
        "sum.go",
        "sum2_test.go",
    ]
    assert kinds.explain("main.go") is None
    alone = FileKinds(tracked=["build.rs", "tests/test_a.rs"], layout=ProjectLayout(conventions=conventions))
    assert alone.explain("build.rs") is not None


def test_an_index_is_imported_by_its_folder_or_by_the_name_of_its_package() -> None:
    conventions = Conventions(framework="jest", is_test=JEST.is_test, list_names=lambda *_: ())
    files = {"index.js": "", "packages/a/package.json": "", "packages/a/index.js": "", "packages/b/package.json": ""}
    files["packages/b/index.js"] = ""
    for text, used in {"require('..')": "index.js", "from '@shop/a'": "packages/a/index.js", "'index'": ""}.items():
        users = {**files, "test/a.test.js": text}
        kinds = FileKinds(tracked=users, users=users, layout=ProjectLayout(conventions=conventions))
        assert (kinds.explain(used) if used else None) is None
        assert kinds.explain("packages/b/index.js") is not None or text == "require('..')"


def test_a_project_in_a_folder_has_a_root_of_its_own() -> None:
    tracked = {"app/src/a.py": "", "app/tests/test_a.py": "import flat", "tools/x.py": ""}
    kinds = FileKinds(tracked=tracked, users=tracked, layout=ProjectLayout(project="app"))
    assert find_free(kinds, ["app/noxfile.py", "noxfile.py", "app/src/b.py", "app/flat.py", "app/tests/test_b.py"]) == [
        "app/src/b.py",
        "app/flat.py",
        "app/tests/test_b.py",
    ]


PROJECT = b'[project]\nname = "a"\nversion = "1"\ndescription = "x"\n[tool.poe.tasks]\nt = "true"\n'


@pytest.mark.parametrize(
    ("path", "before", "after", "shown"),
    [
        ("pyproject.toml", PROJECT, PROJECT.replace(b'"1"', b'"2"').replace(b'"x"', b'"y"'), None),
        ("pyproject.toml", PROJECT, b"# a comment\n" + PROJECT, None),
        ("pyproject.toml", PROJECT, PROJECT + b'[project.urls]\nHome = "https://x"\n', None),
        ("pyproject.toml", PROJECT, PROJECT + b'[project.scripts]\na = "a:b"\n', "project.scripts"),
        ("pyproject.toml", PROJECT, PROJECT + b'[project.entry-points.pytest11]\na = "b"\n', "project.entry-points"),
        ("pyproject.toml", PROJECT, PROJECT.replace(b"true", b"evil"), "tool.poe"),
        ("pyproject.toml", PROJECT, PROJECT + b'[tool.pdm]\nscripts = {x = "y"}\n', "tool.pdm"),
        ("pyproject.toml", PROJECT, PROJECT + b'[build-system]\nrequires = ["x"]\n', "build-system.requires"),
        ("pyproject.toml", PROJECT, PROJECT + b'[dependency-groups]\ndev = ["x"]\n', "dependency-groups.dev"),
        ("pyproject.toml", PROJECT, b"[broken", "cannot be read"),
        ("pyproject.toml", PROJECT, b"\xff", "cannot be read"),
        ("sub/setup.cfg", b"[metadata]\nversion = 1\n", b"[metadata]\nversion = 2\n", None),
        ("setup.cfg", b"[metadata]\nversion = 1\n", b"[metadata]\nversion = attr: evil.V\n", "metadata.version"),
        ("setup.cfg", b"[metadata]\nversion = 1\n", b"[aliases]\ntest = evil\n", "aliases.test"),
        ("package.json", b'{"version": "1"}', b'{"version": "2", "keywords": ["a"]}', None),
        ("package.json", b'{"version": "1"}', b'{"scripts": {"postinstall": "evil"}}', "scripts"),
        ("package.json", b'{"scripts": {"test": "jest"}}', b'{"scripts": {"test": "evil"}}', "scripts"),
        ("package.json", b"{}", b'{"husky": {}}', "husky"),
        ("package.json", b"{}", b'{"main": "evil.js"}', "main"),
        ("package.json", b"{}", b"[]", "cannot be read"),
        ("package.json", b'{"main": "a"}', b'{"main": "evil", "main": "a"}', "cannot be read"),
        ("package.json", b'{"type": true}', b'{"type": 1}', "type"),
        ("setup.cfg", b"[a]\nb = 1\n", b"[a]\nb = 2\n[a]\nb = 1\n", "cannot be read"),
        # a section that only other readers see, and keys that differ in case for setuptools
        ("setup.cfg", b"[metadata]\nname = a\n", b"[metadata]\nname = a\n# x\r[options]\r", "cannot be read"),
        ("setup.cfg", b"[metadata]\n", "[metadata]\ndescription = a\x85[pytest]\n".encode(), "cannot be read"),
        ("setup.cfg", b"[metadata]\r\nversion = 1\r\n", b"[metadata]\r\nversion = 2\r\n", None),
        ("setup.cfg", b"[a]\nb = 1\n", b"[a]\nB = 1\n", "a."),
        ("pyproject.toml", PROJECT, PROJECT + b"# a\x0c[tool.x]\n", "cannot be read"),
        ("pyproject.toml", PROJECT, PROJECT + b"[build-system]\n", "build-system"),
        # values that are equal only as texts
        ("package.json", b"{}", b'{"main": "None"}', "main"),
        ("package.json", b"{}", b'{"main": null}', "main"),
        ("package.json", b'{"bin": {"a": "b"}}', b"{\"bin\": \"{'a': 'b'}\"}", "bin"),
        ("setup.cfg", b"[a]\n", b"[a]\nb = None\n", "a.b"),
        # texts about the package that are read from a file
        ("pyproject.toml", b"[project]\n", b'[project]\nreadme = ".env"\n', "project.readme"),
        ("pyproject.toml", b"[project]\n", b'[project]\nreadme = {file = ".env"}\n', "project.readme"),
        ("pyproject.toml", b"[project]\n", b'[project]\nlicense = {file = ".env"}\n', "project.license"),
        ("pyproject.toml", b"[project]\n", b'[project]\nlicense = "MIT"\nreadme = {text = "x"}\n', None),
        ("package.json", b"{}", b"[" * 100_000, "cannot be read"),
        ("Makefile", b"a:\n", b"a:\n", None),
        ("Makefile", b"a:\n", b"a:\n\techo\n", "which programs"),
        ("Shop/Shop.csproj", b"<Project/>", b"<Project><Exec/></Project>", "which programs"),
        ("Cargo.toml", b"", b'[package]\nbuild = "evil.rs"\n', "which programs"),
    ],
)
def test_of_settings_only_texts_about_the_package_may_change(
    path: str, before: bytes, after: bytes, *, shown: str | None
) -> None:
    why = find_started(path, before=before, after=after)
    assert (why is None) == (shown is None)
    assert why is None or (shown or "") in explain(why)


GIT_STARTS = f"echo x > githooks/post-checkout; chmod +x tools.sh; cat > discount.py <<'E'\n{CODE}E"


def test_hooks_of_git_and_new_programs_do_not_land_unattended(project: Project) -> None:
    project.write({"githooks/pre-commit": "#!/bin/sh\n", "lib/tools.sh": "echo\n"})
    project.git("add", ".")
    project.git("commit", "-qm", "hooks")
    project.git("config", "core.hooksPath", "githooks")
    model = ScriptedModel([red(), runs(GIT_STARTS.replace("tools.sh", "lib/tools.sh")), writes("discount.py", CODE)])
    step, why = project.run(item(refactor=False), context=project.context(model))
    assert why is None
    (closed,) = [attempt for attempt in step.attempts if attempt.verdict == "closed"]
    assert "githooks/post-checkout: The hooks" in explain(closed.reasons[0])
    assert "lib/tools.sh: It can be run as a program now." in explain(closed.reasons[0])
    assert list_files(project, step.commits["green"]) == ["discount.py"]


MAKES = f"mkdir -p .cargo; echo x > .cargo/config.toml; echo x > justfile; cat > discount.py <<'E'\n{CODE}E"


def test_unattended_a_file_of_an_unusual_kind_is_undone_and_the_line_that_allows_it_is_told(project: Project) -> None:
    model = ScriptedModel([red(), runs(MAKES), writes("discount.py", CODE)])
    step, why = project.run(item(refactor=False), context=project.context(model))
    assert why is None
    closed = [attempt for attempt in step.attempts if attempt.verdict == "closed"]
    assert [reason.code for reason in closed[0].reasons] == ["needs_approval"]
    assert ".cargo/config.toml: .cargo begins with a dot" in explain(closed[0].reasons[0])
    assert "nobody is there to ask" in explain(closed[0].reasons[0])
    assert list_files(project, step.commits["green"]) == ["discount.py"]
    told = [event.text for event in project.seen if isinstance(event, Notice)]
    assert any("justfile: It is in the root" in text for text in told)
    assert any(
        text.endswith("cdd exec sale --retry 1 --allow-file .cargo/config.toml --allow-file justfile") for text in told
    )


def test_a_tool_refuses_such_a_file_and_the_line_that_allows_it_is_told_once(project: Project) -> None:
    context = project.context(ScriptedModel([]))
    tools = {tool.spec.name: tool for tool in make_tools(PhaseLocks(phase="green", kinds=KINDS), context)}
    for _ in range(2):
        output = tools["Write"].run({"file_path": "just file", "content": "x"})
        assert output.is_error
        assert "nobody is there to ask" in output.text
    (told,) = [event.text for event in project.seen if isinstance(event, Notice)]
    assert told.endswith("To allow it: cdd --allow-file 'just file'")


@pytest.mark.parametrize("answer", [0, 1], ids=["no", "yes"])
def test_a_developer_is_asked_once_about_all_such_files_that_would_land(project: Project, *, answer: int) -> None:
    asked: list[str] = []

    def choose(question: str, _: tuple[str, ...]) -> int:
        asked.append(question)
        return answer

    fails = runs(f"{MAKES}; echo 'x = 1' > discount.py")
    turns = [red(), fails, runs(MAKES), *([] if answer else [writes("discount.py", CODE)])]
    context = project.context(ScriptedModel(turns))
    object.__setattr__(context, "choose", choose)
    step, why = project.run(item(refactor=False), context=context)
    assert why is None
    (question,) = asked
    assert "justfile: It is in the root" in question
    assert ".cargo/config.toml: .cargo begins with a dot" in question
    files = list_files(project, step.commits["green"])
    assert files == ([".cargo/config.toml", "discount.py", "justfile"] if answer else ["discount.py"])
