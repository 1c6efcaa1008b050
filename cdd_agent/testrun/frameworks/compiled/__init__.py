"""Test frameworks of languages that are compiled before their tests can run: Rust, Go, C#, Java and Kotlin."""
