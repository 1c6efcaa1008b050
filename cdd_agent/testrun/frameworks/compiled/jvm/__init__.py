"""Tests in languages of the Java machine: run by Maven, or by Gradle."""
