"""The step in Rust and Java."""

import subprocess
from pathlib import Path

from cdd_agent.storage import exclusive_lock
from tests.stories.frameworks.language import Language, Ready

_DEBIANS = Path("/usr/share/maven-repo")
_NEEDED = {
    "org/apache/maven/plugins/maven-surefire-plugin/2.22.3": "libsurefire-java",
    "org/apache/maven/plugins/maven-resources-plugin/3.3.0": "libmaven-resources-plugin-java",
    "org/apache/maven/plugins/maven-compiler-plugin/3.10.1": "libmaven-compiler-plugin-java",
    "junit/junit/4.x": "junit4",
}
_SETTINGS = (
    "<settings><mirrors><mirror><id>debian</id><mirrorOf>*</mirrorOf>"
    f"<url>file://{_DEBIANS}</url></mirror></mirrors></settings>\n"
)
_JUNIT = """package demo;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

public class {name} {{
    @Test
    public void {method}() {{
        assertEquals({of}, {call});
    }}
}}
"""
_PRODUCTS = """package demo;

public class Products {{
    public static int mul(int {a}, int {b}) {{
        return {a} {sign} {b};
    }}
}}
"""


def _maven(project: Path, shared: Path) -> Ready:
    """A home as one run of the tests leaves it, by a mirror that only the user's own settings name."""
    missing = [package for path, package in _NEEDED.items() if not (_DEBIANS / path).is_dir()]
    if missing:
        return Ready(problem=f"Debian's repository for Maven is not complete: apt-get install {' '.join(missing)}")
    home = shared / "maven-home"
    with exclusive_lock(shared / "maven.lock", purpose="Filling Maven's repository", wait_s=300.0):
        if not (home / "filled").exists():
            (home / ".m2").mkdir(parents=True)
            settings = home / ".m2" / "settings.xml"
            settings.write_text(_SETTINGS)
            repository = f"-Dmaven.repo.local={home}/.m2/repository"
            command = ["mvn", "-B", "-q", "-s", str(settings), repository, "test"]
            done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=200, check=False)
            if done.returncode:
                return Ready(problem=f"Maven cannot run from Debian's repository: {done.stdout[-400:]}")
            (home / "filled").touch()
    return Ready(variables={"HOME": str(home)})


CARGO = Language(
    framework="cargo",
    program="cargo",
    files={
        "Cargo.toml": '[package]\nname = "two-sums"\nversion = "0.1.0"\nedition = "2021"\n',
        "Cargo.lock": '# made by cargo\nversion = 3\n\n[[package]]\nname = "two-sums"\nversion = "0.1.0"\n',
        ".gitignore": "target\n",
        "src/lib.rs": "pub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n",
        "tests/sum.rs": "#[test]\nfn adds() {\n    assert_eq!(two_sums::sum(1, 2), 3);\n}\n",
    },
    test="tests/mul.rs",
    test_text="use two_sums::mul;\n\n#[test]\nfn multiplies() {\n    assert_eq!(mul(3, 4), 12);\n}\n",
    bent="#[test]\nfn multiplies() {}\n",
    source="src/lib.rs",
    wrong="pub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n\npub fn mul(a: i32, b: i32) -> i32 {\n    a + b\n}\n",
    right="pub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n\npub fn mul(a: i32, b: i32) -> i32 {\n    a * b\n}\n",
    tidy="pub fn mul(a: i32, b: i32) -> i32 {\n    a * b\n}\n\npub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n",
    old="tests/sum.rs::adds",
    new="tests/mul.rs::multiplies",
)
MAVEN = Language(
    framework="maven",
    program="mvn",
    files={
        "pom.xml": """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>demo</groupId>
  <artifactId>demo</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.release>17</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency>
  </dependencies>
  <build><plugins>
    <plugin><artifactId>maven-surefire-plugin</artifactId><version>2.22.3</version></plugin>
    <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.10.1</version></plugin>
    <plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.0</version></plugin>
  </plugins></build>
</project>
""",
        ".gitignore": "target\n",
        "src/main/java/demo/Sums.java": "package demo;\n\npublic class Sums {\n"
        "    public static int sum(int a, int b) {\n        return a + b;\n    }\n}\n",
        "src/test/java/demo/SumsTest.java": _JUNIT.format(name="SumsTest", method="adds", call="Sums.sum(1, 2)", of=3),
    },
    test="src/test/java/demo/ProductsTest.java",
    test_text=_JUNIT.format(name="ProductsTest", method="multiplies", call="Products.mul(3, 4)", of=12),
    bent=_JUNIT.format(name="ProductsTest", method="multiplies", call="12", of=12),
    source="src/main/java/demo/Products.java",
    wrong=_PRODUCTS.format(a="a", b="b", sign="+"),
    right=_PRODUCTS.format(a="a", b="b", sign="*"),
    tidy=_PRODUCTS.format(a="left", b="right", sign="*"),
    old="src/test/java/demo/SumsTest.java::adds",
    new="src/test/java/demo/ProductsTest.java::multiplies",
    fetch=_maven,
)
