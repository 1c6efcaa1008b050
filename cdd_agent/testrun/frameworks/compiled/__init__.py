"""Test frameworks of languages that are compiled before their tests can run: Rust, Go, C#, Java and Kotlin."""

from cdd_agent.testrun.frameworks.compiled.dotnet import DOTNET
from cdd_agent.testrun.frameworks.compiled.go import GO
from cdd_agent.testrun.frameworks.compiled.jvm.gradle import GRADLE
from cdd_agent.testrun.frameworks.compiled.jvm.maven import MAVEN
from cdd_agent.testrun.frameworks.compiled.rust.cargo import CARGO
from cdd_agent.testrun.frameworks.compiled.rust.nextest import NEXTEST

__all__ = ["CARGO", "DOTNET", "GO", "GRADLE", "MAVEN", "NEXTEST"]
