"""A long piece of research as a machine with stages: each turn does one stage, and any sandbox can go on where the last one stopped."""

import json
import os
from pathlib import Path

STATE = Path("/workspace/research.json")
FINDINGS = Path("/workspace/findings.md")
STAGES = ["collect", "read", "compare", "write"]


def handler(request):
    state = load()
    if request.get("topic") and request["topic"] != state["topic"]:
        state = {"topic": request["topic"], "done": []}
        FINDINGS.unlink(missing_ok=True)
    if state["topic"] is None:
        return {"error": "say what to look into: {\"topic\": \"…\"}"}
    left = [stage for stage in STAGES if stage not in state["done"]]
    if left:
        work_on(left[0], state["topic"])
        state["done"].append(left[0])
        save(state)
    return {"topic": state["topic"], "done": state["done"], "next": left[1] if len(left) > 1 else None}


def work_on(stage, topic):
    """Where the real work would be. It may be done twice if we are stopped before the stage is noted, so it must bear that."""
    line = f"- {stage}: {topic}\n"
    if not FINDINGS.exists() or line not in FINDINGS.read_text():
        with open(FINDINGS, "a") as file:
            file.write(line)


def load():
    return json.loads(STATE.read_text()) if STATE.exists() else {"topic": None, "done": []}


def save(state):
    beside = STATE.with_suffix(".new")
    with open(beside, "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(STATE)
