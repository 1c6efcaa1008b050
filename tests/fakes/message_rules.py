"""What the Messages API answers with a 400: the rules that a conversation has to keep."""

from collections.abc import Mapping, Sequence

from cdd_agent.model.conversation import JSON


def broken_rule(body: JSON, sent: Sequence[JSON]) -> str | None:
    """The first rule that the request ``body`` breaks; ``sent``: the opaque blocks that the server gave out."""
    if not isinstance(body, dict):
        return "the body must be an object"
    for field, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        if not isinstance(body.get(field), kind):
            return f"{field}: field required"
    for field in ("temperature", "top_p", "top_k"):
        if field in body:
            return f"{field}: not accepted by this model"
    match body.get("tool_choice"):
        case {"type": "any" | "tool"}:
            return "tool_choice: forced tool use is not accepted by this model"
    messages = body["messages"]
    return _broken_by_messages(messages if isinstance(messages, list) else [], sent)


def _broken_by_messages(messages: Sequence[JSON], sent: Sequence[JSON]) -> str | None:
    if not messages:
        return "messages: at least one message is required"
    unanswered: set[str] = set()
    for number, message in enumerate(messages):
        place = f"messages.{number}"
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            return f"{place}.role: must be user or assistant"
        content = message.get("content")
        if not isinstance(content, list) or not content:
            return f"{place}.content: must not be empty"
        blocks = [block for block in content if isinstance(block, dict)]
        broken = _broken_by_blocks(blocks, sent)
        if broken:
            return f"{place}: {broken}"
        if message["role"] == "user":
            answered = {str(block["tool_use_id"]) for block in blocks if block["type"] == "tool_result"}
            if answered != unanswered:
                return f"{place}: tool_use ids {sorted(unanswered)} need their tool_result here, got {sorted(answered)}"
            unanswered = set()
        elif unanswered:
            return f"{place}: tool_use ids {sorted(unanswered)} were found without tool_result"
        else:
            unanswered = {str(block["id"]) for block in blocks if block["type"] == "tool_use"}
    return f"tool_use ids {sorted(unanswered)} were found without tool_result" if unanswered else None


def _broken_by_blocks(blocks: Sequence[Mapping[str, JSON]], sent: Sequence[JSON]) -> str | None:
    for block in blocks:
        match block.get("type"):
            case "text":
                if not str(block.get("text", "")).strip():
                    return "text content blocks must contain non-whitespace text"
            case "tool_use" | "tool_result":
                pass
            case kind:
                if dict(block) not in sent:
                    return f"{kind} blocks cannot be modified: they must remain as they were in the original response"
    return None
