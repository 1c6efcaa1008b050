"""Programs that run in the project's interpreter, each a file that knows nothing of this package."""
