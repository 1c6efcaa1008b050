"""What each command of ``cdd`` does, a module a command or a group of them."""
