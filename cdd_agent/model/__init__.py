"""Who answers: conversations as plain records, the model port, the Anthropic adapter, replay and recording."""
