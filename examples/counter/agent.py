"""Counts its turns. The number lives in /workspace, so it goes on whatever happens to the sandbox."""

import os
from pathlib import Path

COUNT = Path("/workspace/count")


def handler(request):
    count = int(COUNT.read_text()) + 1 if COUNT.exists() else 1
    # Written beside and renamed: whoever stops us finds the old number or the new one, never half of it.
    beside = COUNT.with_suffix(".new")
    with open(beside, "w") as file:
        file.write(str(count))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(COUNT)
    return {"count": count}
