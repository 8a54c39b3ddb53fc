"""Appends each message to a SQLite database in /workspace and says how many there are."""

import sqlite3
from contextlib import closing


def handler(request):
    with closing(sqlite3.connect("/workspace/log.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        with database:  # one transaction: all of it or nothing
            database.execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, message TEXT NOT NULL)")
            database.execute("INSERT INTO log (message) VALUES (?)", [request.get("message", "")])
        (total,) = database.execute("SELECT count(*) FROM log").fetchone()
        (last,) = database.execute("SELECT message FROM log ORDER BY id DESC LIMIT 1").fetchone()
    return {"total": total, "last": last}
