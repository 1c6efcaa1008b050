"""Anthropic's Messages API: where it is, how long it may take, its stream, its failures, and the SDK that speaks it."""
