"""Warm worker for Python handlers: `worker.py ENTRY`. Starts with the turn in HOLDFAST_FIRST_TURN.

Loads ENTRY once and calls its handler(input) for each turn. While a turn runs, descriptors 1 and 2 are its stdout and
stderr files. Its answer is a separate file. Needs Python 3.7 or newer and only the standard library.
"""
import errno
import importlib.util
import inspect
import json
import os
import re
import shutil
import sys
import time
import traceback

RUN = os.environ.get("HOLDFAST_RUN", "/run/holdfast")
WORKSPACE = os.environ.get("HOLDFAST_WORKSPACE", "/workspace")
TMP = os.environ.get("HOLDFAST_TMP", "/tmp")
WORKER = os.environ.get("HOLDFAST_WORKER", "")
TURN = re.compile(r"^turn-[a-z2-7]{16}$")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
ROOM_SECONDS = 0.3
TRACEBACK_CHARS = 64 * 1024
MESSAGE_CHARS = 8000


class NoHandler(Exception):
    """The entry defines no handler(input)."""


class NotSerializable(Exception):
    """The handler's return value is not JSON."""


def age_ms():
    """Age of this process, including the interpreter's start. The kernel counts in steps of 10 ms."""
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rsplit(b")", 1)[1].split()[19])
    return max(0.0, round((time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")) * 1000, 3))


def own(path, flags):
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def counter(name, *paths):
    """A counter of this sandbox in either version of cgroups; 0 if it cannot be read."""
    for path in paths:
        try:
            with open(path) as file:
                for line in file:
                    words = line.split()
                    if len(words) == 2 and words[0] == name:
                        return int(words[1])
        except (OSError, ValueError):
            pass
    return 0


def counts():
    """How often a process was killed for lack of memory, and how often the limit kept one from starting."""
    return (
        counter("oom_kill", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"),
        counter("max", "/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"),
    )


def is_full(folder):
    try:
        return os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def met_limits(error, before):
    """The limits that a failed turn reached. Their names are those of `Limit` in the sidecar's wire.ts."""
    killed, refused = counts()
    met = []
    if killed > before[0] or isinstance(error, MemoryError):
        met.append("memory")
    if refused > before[1]:
        met.append("processes")
    places = (("workspace", WORKSPACE), ("tmp", TMP), ("home", os.environ.get("HOME") or "/"))
    full = [name for name, folder in places if is_full(folder)]
    if not full and isinstance(error, OSError) and error.errno in NO_SPACE:
        full = ["disk"]
    return met + full


class Turn:
    """The files of one turn."""

    def __init__(self, turn_id):
        self.id = turn_id
        self.dir = os.path.join(RUN, "turns", turn_id)
        self.counts = counts()

    def path(self, name):
        return os.path.join(self.dir, name)

    def claim(self):
        """False if another process has claimed the turn, or if it does not exist."""
        try:
            os.close(own(self.path("started"), os.O_WRONLY | os.O_EXCL))
        except OSError:
            return False
        fd = own(self.path("pid"), os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)
        runner = os.environ.get("HOLDFAST_RUNNER", "-")
        try:
            write_all(fd, ("%d %s %s %d %d\n" % (os.getpgrp(), runner, WORKER, *self.counts)).encode())
        except OSError as error:
            # Without this file the runner finds our processes by their environment.
            if error.errno not in NO_SPACE:
                raise
        finally:
            os.close(fd)
        return True

    def redirect(self):
        for target, name in ((1, "stdout"), (2, "stderr")):
            fd = own(self.path(name), os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
            os.dup2(fd, target)
            os.close(fd)

    def publish(self, name, value):
        temporary = self.path(name + "." + WORKER)
        fd = own(temporary, os.O_WRONLY | os.O_EXCL)
        try:
            write_all(fd, value)
        except OSError:
            # A leftover would fill the disk further.
            os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        os.rename(temporary, self.path(name))

    def publish_with_room(self, name, value):
        """Retries while the disk is full, because only this process has the text."""
        while True:
            try:
                return self.publish(name, value)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
            time.sleep(ROOM_SECONDS)

    def publish_if_room(self, name, value):
        try:
            self.publish(name, value)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise


def failure(error, turn):
    frames = error.__traceback__
    # Drops frames of this file from the traceback.
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception as broken:  # the exception has no usable text
        text = "(no traceback: %s)\n" % type(broken).__name__
    try:
        message = str(error)
    except Exception:
        message = "(no message)"
    return {
        "ok": False,
        "error": {
            "type": type(error).__name__,
            "message": message[:MESSAGE_CHARS],
            "traceback": text[-TRACEBACK_CHARS:],
            "limits": met_limits(error, turn.counts),
        },
    }


def load(entry):
    """Imports the agent's file and returns its handler."""
    directory = os.path.dirname(os.path.abspath(entry))
    sys.path.insert(0, directory)
    sys.argv = [entry]
    name = os.path.splitext(os.path.basename(entry))[0]
    if name in sys.modules or not name.isidentifier():
        name = "holdfast_agent"
    spec = importlib.util.spec_from_file_location(name, entry)
    if spec is None or spec.loader is None:
        raise NoHandler("%s is not a Python file" % os.path.basename(entry))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    handler = getattr(module, "handler", None)
    if not callable(handler):
        raise NoHandler("%s defines no function handler(input)" % os.path.basename(entry))
    return handler


class Loop:
    """One event loop for the worker's life, so that objects a handler keeps open stay usable in the next turn."""

    def __init__(self):
        self.loop = None

    def result(self, awaitable):
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)

        async def wait():
            return await awaitable

        return self.loop.run_until_complete(wait())


def empty_tmp():
    for entry in os.scandir(TMP):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            try:
                os.unlink(entry.path)
            except OSError:
                pass


def read_input(turn):
    with open(turn.path("input"), "rb") as file:
        value = json.loads(file.read().decode("utf-8"))
    if isinstance(value, dict) and "session_id" not in value:
        value["session_id"] = os.environ.get("HOLDFAST_SESSION", "")
    return value


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


class Worker:
    def __init__(self, entry, requests):
        self.entry = entry
        self.requests = requests
        self.handler = None
        self.loop = Loop()
        self.turns = 0
        self.quiet = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def answer(self, turn):
        """The answer of a turn, and whether this worker can run another one."""
        try:
            os.chdir(WORKSPACE)
            if self.handler is None:
                self.handler = load(self.entry)
            about = {"id": WORKER, "reused": self.turns > 1, "startMs": None if self.turns > 1 else age_ms()}
            turn.publish_if_room("worker", json.dumps(about).encode())
            result = self.handler(read_input(turn))
            if inspect.isawaitable(result):
                result = self.loop.result(result)
            try:
                return json.dumps({"ok": True, "output": result}, allow_nan=False, separators=(",", ":")).encode(), True
            except (TypeError, ValueError, RecursionError) as error:
                raise NotSerializable("the handler's return value is not JSON: %s" % error) from None
        except Exception as error:
            return json.dumps(failure(error, turn)).encode(), self.handler is not None
        except BaseException as error:  # sys.exit, KeyboardInterrupt: answer, then end the process
            return json.dumps(failure(error, turn)).encode(), False

    def run(self, turn):
        """True while the worker can continue."""
        self.turns += 1
        os.environ["HOLDFAST_TURN"] = turn.id
        answer, goes_on = self.answer(turn)
        flush()
        if not goes_on:
            # Before the answer is visible: the next turn must not be given to this worker.
            os.close(self.requests)
        try:
            turn.publish_with_room("result", answer)
        except OSError as error:
            print("holdfast: the answer could not be written: %s" % error, file=sys.stderr)
            return False
        for target in (1, 2):
            os.dup2(self.quiet, target)
        return goes_on


def main():
    sys.dont_write_bytecode = True
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    # Opened for reading and writing, so that it never ends. A reader shows the sidecar that the worker lives.
    requests = os.open(os.path.join(RUN, "worker", "requests"), os.O_RDWR | os.O_CLOEXEC)
    worker = Worker(sys.argv[1], requests)
    # The runner has claimed the first turn and redirected its output.
    goes_on = worker.run(Turn(os.environ.pop("HOLDFAST_FIRST_TURN")))
    rest = b""
    while goes_on:
        *lines, rest = (rest[-4096:] + os.read(requests, 4096)).split(b"\n")
        for line in lines:
            words = line.decode("ascii", "replace").split(" ")
            if not TURN.match(words[0]):
                continue
            turn = Turn(words[0])
            if not turn.claim():
                continue
            turn.redirect()
            if "tmp" in words[1:]:
                empty_tmp()
            goes_on = worker.run(turn)
            if not goes_on:
                break
    # Threads of the handler may never end. The answer is written, so nothing waits for them.
    flush()
    os._exit(1)


if __name__ == "__main__":
    main()
