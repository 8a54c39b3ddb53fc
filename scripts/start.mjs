// npm start: from a fresh clone to an agent whose work outlives its sandbox. Needs only Node 20 and npm to begin with.
import { join } from 'node:path';
import { holdfast, holdfastJson } from './setup/cli.mjs';
import { buildProgram, ensureDependencies } from './setup/dependencies.mjs';
import { ensureEngine } from './setup/engine.mjs';
import { reportFailure } from './setup/failure.mjs';
import { ensureImages } from './setup/images.mjs';
import { Progress } from './setup/progress.mjs';
import { ROOT, homeDirectory } from './setup/project.mjs';

const RUNS = 3;
const progress = new Progress(process.stdout);

async function setUp() {
  await progress.step('Node 24 and dependencies', ensureDependencies, (installed) =>
    installed ? 'installed' : 'there',
  );
  await progress.step('build', buildProgram);
  const { api } = await progress.step('Docker engine', ensureEngine, ({ socket, started }) =>
    started ? `started, answers at ${socket}` : `answers at ${socket}`,
  );
  await progress.step(
    'images',
    (step) => ensureImages(api, step),
    (done) => done.join(', '),
  );
}

/** The main job: a counter that counts on although its sandbox is destroyed after each turn. */
async function showCounter() {
  await progress.step('deploy examples/counter', () => holdfast(['deploy', join(ROOT, 'examples/counter')]));
  /** @type {string | undefined} */
  let session;
  for (let turn = 1; turn <= RUNS; turn++) {
    const answer = await progress.step(
      `holdfast run counter '{}'`,
      () => holdfastJson(['run', 'counter', '{}']),
      ({ output, sandbox }) => `${spaced(output)}   sandbox: ${sandbox.case}`,
    );
    session = answer.sessionId;
    await progress.step('destroy its sandbox', () => holdfast(['session', 'stop', answer.sessionId]));
  }
  const info = await holdfastJson(['workspace', 'info', session ?? 'counter/default']);
  progress.line('');
  progress.line(
    `The workspace, kept while no container exists: ${info.path ?? '(a volume inside the engine)'}`,
  );
}

/** @param {unknown} value JSON as people write it: {"count": 1} */
function spaced(value) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 1);
  return text
    .replace(/\n\s*/g, ' ')
    .replace(/([{[]) /g, '$1')
    .replace(/ ([}\]])/g, '$1');
}

function showNext() {
  progress.line(`
Next things to try
  npm run -s holdfast -- run counter '{}'                      it goes on counting
  npm run -s holdfast -- exec counter/default -- ls -la        look around inside
  npm run -s holdfast -- deploy examples/conversation          an agent that remembers a conversation
  npm run -s holdfast -- run conversation '{"query": "hello"}' --session ada
  npm run -s holdfast -- session list
  npm run -s holdfast -- --help

The engine and the supervisor stay up. To stop them
  npm run -s holdfast -- supervisor stop
  npm run engine:stop                                          (only an engine that npm start started)

Everything is kept in ${homeDirectory()}; "npm run -s holdfast -- purge" removes it.`);
}

try {
  await setUp();
  await showCounter();
  showNext();
} catch (error) {
  reportFailure(progress, error);
}
