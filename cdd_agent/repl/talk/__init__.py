"""What is said around each agent at the prompt."""
