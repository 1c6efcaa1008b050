"""The rules by which attempts are judged and gone on from. Pure."""
