"""The tools that an agent is given, each made from what it needs."""
