import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Git } from '../../../handoff/git.ts';
import { openRepository } from '../../../handoff/repository.ts';
import { type HeadToSend, type ReviewBaseConnection, sendHead } from '../../../handoff/review-head.ts';
import type { Params } from '../../../protocol/methods.ts';
import type { HeadEntry } from '../../../protocol/review-base.ts';
import { type Files, GIT_ENV, PersonsRepository } from '../../fixtures/handoff/handoff-fixture.ts';
import { rejectedError, temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const PROJECT: Files = {
  'holdfast.yaml': 'name: p\n',
  '.holdfastignore': 'secrets/\n*.pem\n!public.pem\n',
  'secrets/old.key': 'old key',
  'src/.gitignore': 'made\n',
  'src/a.c': 'a',
  'src/public.pem': 'public',
};

interface Answers {
  readonly prefix?: string;
  readonly folder?: string;
  readonly head?: string | null;
  /** What the host does instead of taking contents. */
  readonly onContents?: () => void;
}

/** A host that wants every content of which it hears, and says what it likes about where the project is. */
function greedyHost(answers: Answers & { readonly head: string | null }) {
  const entries: HeadEntry[] = [];
  const received: string[] = [];
  const methods: string[] = [];
  const connection: ReviewBaseConnection = {
    callWithBytes: async (method, params, options) => {
      await Promise.resolve();
      methods.push(method);
      const answer = (): unknown => {
        switch (method) {
          case 'review/base/begin': {
            const { prefix = '', folder = '', head } = answers;
            const origin = { root: '/elsewhere', prefix, head, branch: 'main', remote: null };
            return { upload: 'upload', origin, folder };
          }
          case 'review/base/append':
            entries.push(...(params as Params<'review/base/append'>).entries);
            return {};
          case 'review/base/missing':
            return { blobs: [...new Set(entries.map(({ blob }) => blob))], next: null };
          case 'review/base/contents':
            answers.onContents?.();
            received.push(Buffer.from(options?.bytes ?? []).toString());
            return {};
          default:
            return {};
        }
      };
      return { result: answer(), bytes: Buffer.alloc(0) } as never;
    },
  };
  return {
    connection,
    methods,
    get paths() {
      return entries.map(({ path }) => path).sort();
    },
    get received() {
      return received.join('');
    },
  };
}

/** A repository with one commit that was deployed. */
function deployed(files: Files) {
  const repository = new PersonsRepository();
  const head = repository.commit(files);
  const send = async (
    answers: Answers = {},
    { folder = repository.folder, signal }: { folder?: string; signal?: AbortSignal } = {},
  ) => {
    const host = greedyHost({ head, ...answers });
    const announced: HeadToSend[] = [];
    const git = new Git(folder, GIT_ENV, signal);
    const opened = await openRepository(git, temporaryDirectory(), 'review');
    const sending = sendHead(
      host.connection,
      { session: 'p/default', repository: opened, folder },
      { signal, onSend: (what) => void announced.push(what) },
    );
    return { host, announced, sending };
  };
  return { repository, head, send };
}

test('what a deploy leaves out is not sent to a host that asks for everything, neither its contents nor its names', async () => {
  const { repository, send } = deployed(PROJECT);
  repository.commit({
    'secrets/new.key': 'new key',
    'secrets/deep/in/x': 'deep key',
    'src/server.pem': 'private',
    'src/made': 'made',
    'src/b.c': 'b',
  });
  const { host, announced, sending } = await send();
  await sending;
  expect(host.paths).toEqual([
    ...['.holdfastignore', 'holdfast.yaml', 'src/.gitignore', 'src/a.c', 'src/b.c', 'src/public.pem'],
  ]);
  expect(host.received).not.toMatch(/key|private|made$/);
  expect(announced).toEqual([{ files: 6, bytes: host.received.length }]);
  expect(host.methods).not.toContain('review/base/end');
});

test('an ignore file that nobody committed counts, and so does the folder of the configuration of the agent', async () => {
  const { repository, send } = deployed({
    'holdfast.yaml': 'name: p\nagent: { command: [x], config: agent-home }\n',
    'agent-home/auth.json': 'a token',
    'notes/mine': 'private',
    'a.c': 'a',
  });
  repository.write({ 'notes/.holdfastignore': '*\n' });
  const { host, sending } = await send();
  await sending;
  expect(host.paths).toEqual(['a.c', 'holdfast.yaml']);
});

test('the folder that the person chose says where the project is, whatever the host says', async () => {
  const { repository, send } = deployed({
    'letters/private': 'private',
    'one/holdfast.yaml': 'name: one\n',
    'one/src/a': 'one',
    'two/holdfast.yaml': 'name: two\n',
    'two/b': 'two',
  });
  const refused = async (prefix: string, folder = repository.folder) => {
    const { host, sending } = await send({ prefix }, { folder });
    expect(await rejectedError(sending)).toMatchObject({ code: 'conflict' });
    expect(host.methods).toEqual(['review/base/begin', 'review/base/end']);
  };
  await refused('');
  await refused('letters/');
  await refused('two/', join(repository.folder, 'one/src'));
  for (const folder of [repository.folder, join(repository.folder, 'one/src')]) {
    const { host, sending } = await send({ prefix: 'one/' }, { folder });
    await sending;
    expect(host.paths).toEqual(['holdfast.yaml', 'src/a']);
  }
  // The part of the project that the workspace holds.
  const { host, sending } = await send({ prefix: 'one/', folder: 'src/' });
  await sending;
  expect(host.paths).toEqual(['a']);
});

test('a project that was deployed before the first commit is refused, before anything is listed', async () => {
  const { send } = deployed(PROJECT);
  const { host, sending } = await send({ head: null });
  const error = await rejectedError(sending);
  expect(error).toMatchObject({
    code: 'not_supported',
    next: expect.stringContaining('--base start') as string,
  });
  expect(host.paths).toEqual([]);
});

test('an upload that fails or is cancelled gives its place back', async () => {
  const { send } = deployed(PROJECT);
  const other = await send({ head: 'e'.repeat(40) });
  expect(await rejectedError(other.sending)).toMatchObject({ code: 'conflict' });
  expect(other.host.methods.at(-1)).toBe('review/base/end');

  const cancel = new AbortController();
  const cancelled = await send(
    {
      onContents: () => {
        cancel.abort();
        throw new Error('the request was cancelled');
      },
    },
    { signal: cancel.signal },
  );
  await expect(cancelled.sending).rejects.toThrow('cancelled');
  expect(cancelled.host.methods.at(-1)).toBe('review/base/end');
});
