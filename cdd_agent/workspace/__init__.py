"""The files: everything read, found or written beneath the project's folder, and nothing outside it."""
