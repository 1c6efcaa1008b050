"""What a user asks for, each a thin sequence over the parts below; no workflow knows another."""
