// A Docker engine that answers: found, or (Debian and Ubuntu, as root) installed and started – and stopped again, if it is ours.
import { spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { onPath, run } from './command.mjs';
import { canInstall, install } from './debian.mjs';
import { DockerApi } from './docker-api.mjs';
import { endpoint } from './endpoint.mjs';
import { SetupError, reasonOf } from './project.mjs';

/** Where the engine that we started is remembered; one machine has one, whatever the home. */
const RECORD = '/run/holdfast-engine.json';
const ENGINE_LOG = '/var/log/holdfast-dockerd.log';
const PACKAGES = ['docker.io', 'iptables'];

/** @typedef {{ pid: number, startedAt: string, systemd: boolean }} Started startedAt: the process's start time in ticks */
/** @typedef {{ api: DockerApi, socket: string, from: string, started: boolean }} Engine started: by this call */

/** @param {import('./progress.mjs').Step} step @returns {Promise<Engine>} */
export async function ensureEngine(step) {
  const { socket, from, isDefault } = endpoint();
  const api = new DockerApi(socket);
  const problem = await api.ping();
  if (problem === undefined) return { api, socket, from, started: false };
  if (!isDefault) {
    throw new SetupError(
      `the Docker engine that ${from} names does not answer at ${socket}: ${problem}`,
      'Start it, or unset DOCKER_HOST and run "docker context use default"',
    );
  }
  if (problem.includes('EACCES')) {
    throw new SetupError(
      `you may not use the Docker engine at ${socket}`,
      'Run "sudo usermod -aG docker $USER", log in again, and run this again',
    );
  }
  if (!canInstall()) {
    throw new SetupError(
      `no Docker engine answers at ${socket}: ${problem}`,
      onPath('dockerd') === undefined
        ? 'Install one (Debian, Ubuntu: "sudo apt-get install docker.io iptables") and start it, or set DOCKER_HOST=unix:///path/to/docker.sock'
        : 'Start it ("sudo systemctl start docker"), or set DOCKER_HOST=unix:///path/to/docker.sock',
    );
  }
  if (onPath('dockerd') === undefined) {
    step.show(`installing ${PACKAGES.join(' and ')}`);
    await install(PACKAGES, step);
  }
  // Where an init system runs, installing the package has started the engine already.
  if ((await api.ping()) === undefined) return { api, socket, from, started: false };
  step.show('starting dockerd');
  await start(api);
  return { api, socket, from, started: true };
}

/** @param {DockerApi} api */
async function start(api) {
  if (existsSync('/run/systemd/system')) {
    await run('systemctl', ['start', 'docker'], { next: 'See "journalctl -u docker"' });
    remember({ pid: 0, startedAt: '', systemd: true });
    await answering(api, () => undefined);
    return;
  }
  const log = openSync(ENGINE_LOG, 'a', 0o600);
  const daemon = spawn(onPath('dockerd') ?? 'dockerd', [], { detached: true, stdio: ['ignore', log, log] });
  closeSync(log);
  /** @type {string | undefined} */
  let ended;
  daemon.on('error', (error) => (ended = reasonOf(error)));
  daemon.on('exit', (code, signal) => (ended = `it ended with ${code ?? signal}`));
  if (daemon.pid !== undefined) {
    // Remembered before it answers: when we are killed while waiting, it can still be stopped.
    remember({ pid: daemon.pid, startedAt: startTime(daemon.pid) ?? '', systemd: false });
  }
  await answering(api, () => ended);
  daemon.removeAllListeners();
  daemon.unref();
}

/** @param {DockerApi} api @param {() => string | undefined} ended */
async function answering(api, ended) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const problem = await api.ping();
    if (problem === undefined) return;
    const end = ended();
    if (end !== undefined || Date.now() > deadline) {
      throw new SetupError(`dockerd did not come up: ${end ?? problem}`, `Read its log: ${ENGINE_LOG}`);
    }
    await sleep(100);
  }
}

/**
 * Stops the engine if we started it, and only that very process.
 * @returns {Promise<string>} what was done
 */
export async function stopEngine() {
  const started = remembered();
  if (started === undefined) return 'no engine was started by Holdfast: nothing to stop';
  if (started.systemd) {
    await run('systemctl', ['stop', 'docker.socket', 'docker.service'], {
      next: 'See "journalctl -u docker"',
    });
    rmSync(RECORD, { force: true });
    return 'the Docker service is stopped';
  }
  if (startTime(started.pid) !== started.startedAt) {
    rmSync(RECORD, { force: true });
    return 'the engine that Holdfast started is not running any more';
  }
  process.kill(started.pid, 'SIGTERM');
  const deadline = Date.now() + 60_000;
  while (startTime(started.pid) === started.startedAt) {
    if (Date.now() > deadline) {
      throw new SetupError(`dockerd (process ${started.pid}) does not end`, `Read its log: ${ENGINE_LOG}`);
    }
    await sleep(100);
  }
  rmSync(RECORD, { force: true });
  return `the engine (process ${started.pid}) is stopped`;
}

/** @param {Started} started */
function remember(started) {
  writeFileSync(RECORD, JSON.stringify(started), { mode: 0o600 });
}

/** @returns {Started | undefined} */
function remembered() {
  try {
    return JSON.parse(readFileSync(RECORD, 'utf8'));
  } catch {
    return undefined; // none was started
  }
}

/** @param {number} pid @returns {string | undefined} when the process began, which tells it from a later one with its number */
function startTime(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the name in parentheses and may hold anything: count from its end. A zombie has ended.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' ? undefined : fields[19];
  } catch {
    return undefined; // no such process
  }
}
