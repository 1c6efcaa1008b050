"""Programs that run in the project's interpreter; each file works without this package."""
