"""What the slash commands do, by what they are about."""
