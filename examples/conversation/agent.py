"""Remembers a conversation twice: in memory while its worker lives, in /workspace for when it does not."""

import json
import os
from pathlib import Path

SESSIONS = Path("/workspace/sessions")

# Lives as long as the worker: the next turn of this session finds it here without reading a file.
conversations = {}


def handler(request):
    session = request["session_id"]
    found = "memory" if session in conversations else "file"
    history = conversations[session] if session in conversations else load(session)
    if not history:
        found = "nowhere"
    history.append({"role": "user", "content": request.get("query", "")})
    response = answer(history)
    history.append({"role": "assistant", "content": response})
    conversations[session] = history
    save(session, history)
    return {"response": response, "turn": len(history) // 2, "found": found}


def answer(history):
    """Where a model would be asked: this one can only look back."""
    before = [line["content"] for line in history[:-1] if line["role"] == "user"]
    if not before:
        return "We have not met before."
    return f'You began with "{before[0]}" and have said {len(before)} things before this one.'


def load(session):
    path = SESSIONS / f"{session}.json"
    return json.loads(path.read_text()) if path.exists() else []


def save(session, history):
    SESSIONS.mkdir(exist_ok=True)
    path = SESSIONS / f"{session}.json"
    beside = path.with_suffix(".new")
    with open(beside, "w") as file:
        json.dump(history, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
