import os
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.environment import SHARED, digest_parts, fingerprint
from cdd_agent.testrun.suite import Conventions, list_modules

RULES = Conventions(
    framework="a",
    is_test=lambda path: path.startswith(("test/", "target/test/")),
    list_names=list_modules,
    shared=SHARED,
    digest_parts=digest_parts,
)


@pytest.mark.parametrize(
    ("name", "before", "after", "differs"),
    [
        ("package.json", '{"scripts": {"test": "a"}}', '{"scripts": {"test": "b"}}', True),
        ("package.json", '{"scripts": {"test": "a"}}', '{"version": "2", "scripts": {"test": "a", "x": "1"}}', False),
        ("package.json", '{"jest": {}}', '{"jest": {"bail": 1}}', True),
        ("package.json", '{"jest": {}}', "{", True),
        ("Cargo.toml", "[package]\nname='a'\n", "[package]\nname='a'\n[dependencies]\nb='1'\n", False),
        ("Cargo.toml", "[package]\nname='a'\n", "[package]\nname='a'\nautotests=false\n", True),
        ("Cargo.toml", "", "[[test]]\nname='a'\nharness=false\n", True),
        ("vite.config.ts", "export default {}", "export default { base: '/' }", False),
        ("vite.config.ts", "export default {}", "export default { test: {} }", True),
        ("pom.xml", "<a/>", "<a><plugin><artifactId>maven-surefire-plugin</artifactId></plugin></a>", True),
        ("pom.xml", "<a/>", "<a><dependency/></a>", False),
    ],
)
def test_of_a_shared_file_only_what_configures_the_tests_counts(
    tmp_path: Path, name: str, *, before: str, after: str, differs: bool
) -> None:
    (tmp_path / name).write_text(before)
    first = digest_parts(tmp_path)
    (tmp_path / name).write_text(after)
    assert (digest_parts(tmp_path) != first) is differs


def test_tests_count_wherever_they_lie_and_what_was_built_does_not(tmp_path: Path) -> None:
    for name in ("test/a.js", "src/a.js", "node_modules/test/a.js", "dist/a.js", "web/package.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"jest": {}}')
    os.symlink("../src/a.js", tmp_path / "test" / "link.js")
    found = fingerprint(tmp_path, RULES)
    assert list(found) == ["test/a.js", "test/link.js", "web/package.json[tests]"]
    (tmp_path / "src" / "a.js").write_text("changed")
    assert fingerprint(tmp_path, RULES) == found, "a link is told by where it leads"
    (tmp_path / "test" / "a.js").write_text("changed")
    assert fingerprint(tmp_path, RULES) != found
