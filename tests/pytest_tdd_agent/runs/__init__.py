"""Whole runs of pytest with the plugin."""
