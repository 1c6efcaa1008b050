"""Tests in Rust: run by cargo, or by nextest."""
