"""Files byte for byte, beside what git keeps of them."""
