// Warm worker for Node handlers: `worker.mjs ENTRY`. Starts with the turn in HOLDFAST_FIRST_TURN.
// Loads ENTRY once and calls its handler(input) for each turn. While a turn runs, descriptors 1 and 2 are its stdout
// and stderr files. Its answer is a separate file. Needs Node 18 or newer and no packages.
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  statfsSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { Socket } from 'node:net';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';

const RUN = process.env.HOLDFAST_RUN ?? '/run/holdfast';
const WORKSPACE = process.env.HOLDFAST_WORKSPACE ?? '/workspace';
const TMP = process.env.HOLDFAST_TMP ?? '/tmp';
const WORKER = process.env.HOLDFAST_WORKER ?? '';
const TURN = /^turn-[a-z2-7]{16}$/;
const TRACEBACK_CHARS = 64 * 1024;
const MESSAGE_CHARS = 8000;
const ROOM_MS = 300;
const { O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NOFOLLOW, O_NONBLOCK } = constants;

/** The process group of this worker, which is its leader. */
const GROUP = process.pid;
const entry = process.argv[2];

class NoHandler extends Error {
  name = 'NoHandler';
}
class NotSerializable extends Error {
  name = 'NotSerializable';
}
class ProcessExit extends Error {
  name = 'ProcessExit';
}

function isNoSpace(error) {
  return error?.code === 'ENOSPC' || error?.code === 'EDQUOT';
}

/** A counter of this sandbox in either version of cgroups; 0 if it cannot be read. */
function counter(name, ...paths) {
  for (const path of paths) {
    try {
      const found = new RegExp(`^${name} ([0-9]+)$`, 'm').exec(readFileSync(path, 'latin1'));
      if (found !== null) return Number(found[1]);
    } catch {
      // Not this version of cgroups.
    }
  }
  return 0;
}

/** How often a process was killed because memory ran out, and how often the limit kept one from starting. */
function counts() {
  return {
    killed: counter('oom_kill', '/sys/fs/cgroup/memory.events', '/sys/fs/cgroup/memory/memory.oom_control'),
    refused: counter('max', '/sys/fs/cgroup/pids.events', '/sys/fs/cgroup/pids/pids.events'),
  };
}

function isFull(folder) {
  try {
    return statfsSync(folder).bavail === 0;
  } catch {
    return false;
  }
}

/** The limits that a failed turn reached. Their names are those of `Limit` in the sidecar's wire.ts. */
function metLimits(error, before) {
  const now = counts();
  const places = { workspace: WORKSPACE, tmp: TMP, home: process.env.HOME || '/' };
  const full = Object.keys(places).filter((name) => isFull(places[name]));
  return [
    ...(now.killed > before.killed ? ['memory'] : []),
    ...(now.refused > before.refused ? ['processes'] : []),
    ...(full.length === 0 && isNoSpace(error) ? ['disk'] : full),
  ];
}

class Turn {
  constructor(id) {
    this.id = id;
    this.directory = join(RUN, 'turns', id);
    this.counts = counts();
  }

  path(name) {
    return join(this.directory, name);
  }

  /** False if another process has claimed the turn, or if it does not exist. */
  claim() {
    try {
      closeSync(openSync(this.path('started'), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600));
    } catch {
      return false;
    }
    const fd = openSync(this.path('pid'), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0o600);
    const { killed, refused } = this.counts;
    try {
      writeSync(fd, `${GROUP} ${process.env.HOLDFAST_RUNNER ?? '-'} ${WORKER} ${killed} ${refused}\n`);
    } catch (error) {
      // Without this file the runner finds our processes by their environment.
      if (!isNoSpace(error)) throw error;
    } finally {
      closeSync(fd);
    }
    return true;
  }

  redirect() {
    pointTo(1, this.path('stdout'), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK);
    pointTo(2, this.path('stderr'), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK);
  }

  publish(name, text) {
    const temporary = this.path(`${name}.${WORKER}`);
    try {
      writeFileSync(temporary, text, { flag: 'wx', mode: 0o600 });
    } catch (error) {
      // A leftover would fill the disk further.
      if (isNoSpace(error)) rmSync(temporary, { force: true });
      throw error;
    }
    renameSync(temporary, this.path(name));
  }

  /** Retries while the disk is full, because only this process has the text. Blocks, because it also runs at exit. */
  publishWithRoom(name, text) {
    for (;;) {
      try {
        this.publish(name, text);
        return;
      } catch (error) {
        if (!isNoSpace(error)) throw error;
      }
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ROOM_MS);
    }
  }

  publishIfRoom(name, text) {
    try {
      this.publish(name, text);
    } catch (error) {
      if (!isNoSpace(error)) throw error;
    }
  }
}

/** Node has no dup2, but open returns the lowest free number. A thread that opens a file in between may get it. */
function pointTo(fd, path, flags) {
  for (let tries = 0; tries < 20; tries += 1) {
    closeSync(fd);
    const got = openSync(path, flags, 0o600);
    if (got === fd) return;
    closeSync(got);
    try {
      fstatSync(fd);
    } catch {
      continue;
    }
    // Another file has the number now and must stay open.
    return;
  }
}

function failure(error, turn) {
  const isError = error instanceof Error;
  let type = 'Error';
  let message = '';
  let stack = '';
  try {
    type = isError ? String(error.name) : typeof error;
    message = isError ? String(error.message) : String(error);
    stack = isError ? String(error.stack) : '';
    if (isError && error.cause !== undefined)
      stack += `\nCaused by: ${String(error.cause?.stack ?? error.cause)}`;
  } catch {
    message ||= '(no message)';
  }
  const traceback = stack
    .split('\n')
    .filter((line) => !line.includes(import.meta.url))
    .join('\n')
    .slice(0, TRACEBACK_CHARS);
  return {
    ok: false,
    error: {
      type: type.slice(0, 200),
      message: message.slice(0, MESSAGE_CHARS),
      traceback,
      limits: metLimits(error, turn.counts),
    },
  };
}

async function load() {
  const module = await import(pathToFileURL(entry).href);
  const found = [module.handler, module.default, module.default?.handler, module['module.exports']?.handler];
  const handler = found.find((one) => typeof one === 'function');
  if (handler === undefined) {
    throw new NoHandler(
      `${basename(entry)} exports no function: export default, or a function named handler`,
    );
  }
  return handler;
}

function readInput(turn) {
  const value = JSON.parse(readFileSync(turn.path('input'), 'utf8'));
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  if (isObject && !Object.hasOwn(value, 'session_id')) value.session_id = process.env.HOLDFAST_SESSION ?? '';
  return value;
}

function encode(output) {
  let text;
  try {
    text = JSON.stringify(output === undefined ? null : output);
  } catch (error) {
    throw new NotSerializable(`the handler's return value is not JSON: ${error.message}`);
  }
  if (text === undefined)
    throw new NotSerializable(`the handler's return value is not JSON: it is a ${typeof output}`);
  return `{"ok":true,"output":${text}}`;
}

function emptyTmp() {
  for (const name of readdirSync(TMP, { encoding: 'buffer' })) {
    const path = Buffer.concat([Buffer.from(`${TMP}/`), name]);
    try {
      rmSync(path, { recursive: true, force: true });
    } catch {
      // It stays, as it would for rm -rf.
    }
  }
}

let handler;
let current = null;
let turns = 0;

function answer(turn, text, isLast) {
  if (current !== turn) return; // Already answered by an error outside the handler.
  current = null;
  // Before the answer is visible: the next turn must not be given to a worker that is ending.
  if (isLast) requests.destroy();
  try {
    turn.publishWithRoom('result', text);
  } catch (error) {
    console.error(`holdfast: the answer could not be written: ${error.message}`);
    process.exit(1);
  }
}

async function run(turn) {
  turns += 1;
  current = turn;
  process.env.HOLDFAST_TURN = turn.id;
  let text;
  try {
    process.chdir(WORKSPACE);
    handler ??= await load();
    const startMs = turns > 1 ? null : Math.round(performance.now() * 1000) / 1000;
    turn.publishIfRoom('worker', JSON.stringify({ id: WORKER, reused: turns > 1, startMs }));
    text = encode(await handler(readInput(turn)));
  } catch (error) {
    text = JSON.stringify(failure(error, turn));
  }
  // The next worker tries to load the entry again.
  answer(turn, text, handler === undefined);
  if (handler === undefined) process.exit(1);
  pointTo(1, '/dev/null', O_WRONLY);
  pointTo(2, '/dev/null', O_WRONLY);
}

// An error that nobody awaits belongs to the running turn. The worker's state is no longer trusted.
function fail(error) {
  if (current === null) {
    console.error(error);
  } else {
    answer(current, JSON.stringify(failure(error, current)), true);
  }
  process.exit(1);
}
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);
process.on('exit', (code) => {
  if (current !== null) {
    const error = new ProcessExit(`the handler ended its process with process.exit(${code})`);
    answer(current, JSON.stringify(failure(error, current)), true);
  }
});

// Opened for reading and writing, so that it never ends. Opened early: a reader shows the sidecar that the worker
// lives.
const fifo = join(RUN, 'worker', 'requests');
if (!statSync(fifo).isFIFO()) throw new Error(`${fifo} is not a FIFO`);
const requests = new Socket({ fd: openSync(fifo, O_RDWR | O_NONBLOCK), readable: true, writable: false });

let queue = Promise.resolve();
const first = process.env.HOLDFAST_FIRST_TURN ?? '';
delete process.env.HOLDFAST_FIRST_TURN;
// The runner has claimed the first turn and redirected its output.
queue = queue.then(() => run(new Turn(first)));

let rest = '';
requests.setEncoding('latin1');
requests.on('data', (chunk) => {
  const lines = (rest.slice(-4096) + chunk).split('\n');
  rest = lines.pop();
  for (const line of lines) {
    const words = line.split(' ');
    if (!TURN.test(words[0])) continue;
    queue = queue.then(async () => {
      const turn = new Turn(words[0]);
      if (!turn.claim()) return;
      turn.redirect();
      if (words.includes('tmp')) emptyTmp();
      await run(turn);
    });
  }
});
