"""Asks something expensive once per question and keeps the answer under /workspace/cache."""

import hashlib
import json
import time
from pathlib import Path

CACHE = Path("/workspace/cache")


def handler(request):
    query = request.get("query", "")
    path = CACHE / f"{hashlib.sha256(query.encode()).hexdigest()}.json"
    if path.exists():
        return {**json.loads(path.read_text()), "cached": True}
    result = expensive(query)
    CACHE.mkdir(exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(result))
    beside.replace(path)
    return {**result, "cached": False}


def expensive(query):
    """Stands for a call that costs time or money."""
    time.sleep(0.5)
    return {"query": query, "answer": f"{len(query)} letters, {len(query.split())} words"}
