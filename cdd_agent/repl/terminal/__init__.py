"""The line editor: keys, completion, toolbar, history."""
