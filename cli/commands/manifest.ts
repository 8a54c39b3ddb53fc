import { createPublicKey, type KeyObject } from 'node:crypto';
import { open, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { readPublicKey } from '../../protocol/envelope.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { parseEvent } from '../../protocol/events.ts';
import { SessionIdSchema } from '../../protocol/ids.ts';
import { ENVELOPE_CHARACTERS, type Manifest, type ManifestStatement } from '../../protocol/manifest.ts';
import { formatOpenPorts } from '../../protocol/open-ports.ts';
import {
  type KnownCut,
  manifestDifferences,
  readUnverified,
  unprovenBy,
  verifyManifest,
} from '../../protocol/manifest-verification.ts';
import type { Context } from '../context.ts';
import { EXIT, UsageError } from '../failure.ts';
import type { Registry } from '../registry.ts';
import { writeNewFile } from '../new-file.ts';
import { formatSize } from '../render/quantity.ts';
import { pluralize, sanitizeLine } from '../render/text.ts';

const KEY_CHARACTERS = 4096;
const LISTED_TURNS = 10;
const LISTED_HOSTS = 10;

export function registerManifests(registry: Registry): void {
  const group = registry.group('manifest', 'signed statements of what a session did');
  registerShow(registry, group);
  registerList(registry, group);
  registerVerify(registry, group);
  registerDiff(registry, group);

  const key = registry.command(group, {
    usage: 'key',
    description: 'print the public key that verifies the manifests of this installation',
    examples: ['holdfast manifest key > build-machine.pem'],
  });
  registry.setAction(key, async (context) => {
    const { publicKey, keyId } = await context.call('manifest/key', {});
    if (context.json) await context.printJson({ publicKey, keyId });
    else await context.stdout.write(publicKey);
    return undefined;
  });
}

type Group = ReturnType<Registry['group']>;

interface ShowOptions {
  readonly id?: string;
  readonly output?: string;
}

function registerShow(registry: Registry, group: Group): void {
  const command = registry
    .command(group, {
      usage: 'show <session>',
      description: 'create and sign a manifest of what a session did so far, or show a stored one',
      operands: ['session'],
      examples: [
        'holdfast manifest show default',
        'holdfast manifest show default --output default.manifest.json',
      ],
    })
    .option('--id <manifest>', 'show this stored manifest (see `manifest list`, or the trailer of a commit)')
    .option('--output <file>', 'also save the signed envelope in this new file');
  registry.setAction(command, async (context, { id, output }: ShowOptions, session: string) => {
    const { envelope } = await context.call('manifest/show', {
      session,
      ...(id === undefined ? {} : { id }),
    });
    const text = JSON.stringify(envelope);
    const statement = readUnverified(text);
    if (statement === null) throw notAManifest(session);
    const file = output === undefined ? null : resolve(context.io.cwd, output);
    if (file !== null) await writeNewFile(file, `${text}\n`);
    if (context.json) await context.printJson({ statement, envelope, file });
    else {
      await context.print(...describe(statement));
      if (file !== null) await context.printNote(`Saved: ${sanitizeLine(file)}`);
    }
    return undefined;
  });
}

function registerList(registry: Registry, group: Group): void {
  const command = registry.command(group, {
    usage: 'list <session>',
    description: 'list the manifests that were created at handoffs, snapshots and resumes, the newest first',
    operands: ['session'],
  });
  registry.setAction(command, async (context, _options, session: string) => {
    const { manifests } = await context.call('manifest/list', { session });
    if (context.json) {
      await context.printJson({ manifests });
      return undefined;
    }
    if (manifests.length === 0) await context.printHint('No manifest is kept of this session yet');
    await context.print(
      ...manifests.map(({ id, reason, madeAt, handoff, snapshot }) =>
        [id, madeAt, reason, handoff ?? snapshot ?? ''].join('  ').trimEnd(),
      ),
    );
    return undefined;
  });
}

function registerVerify(registry: Registry, group: Group): void {
  const command = registry
    .command(group, {
      usage: 'verify <file-or-session>',
      description:
        'check the signature of a saved manifest, or of one created now, and list what it cannot prove',
      operands: ['session'],
      examples: ['holdfast manifest verify default.manifest.json --key build-machine.pem'],
    })
    .option(
      '--key <file>',
      'the public key of the machine that signed it; no supervisor is needed then (default: that of this installation)',
    );
  registry.setAction(command, async (context, { key }: { key?: string }, what: string) => {
    const text = await readEnvelope(context, what);
    const publicKey = key === undefined ? await ownKey(context) : await keyOf(context, key);
    const verified = verifyManifest(text, publicKey);
    if (!verified.valid) {
      if (context.json) await context.printJson({ valid: false, why: verified.why });
      else await context.print(`${context.style.red('NOT VALID')}: ${verified.why}`);
      return EXIT.failed;
    }
    const { keyId, statement } = verified;
    const unproven = unprovenBy(statement, key === undefined ? await cutOf(context, statement) : null);
    if (context.json) await context.printJson({ valid: true, keyId, statement, unproven });
    else {
      await context.print(
        `${context.style.green('Valid')}: signed by the key ${keyId.slice(0, 16)}, and unchanged since`,
        '',
        ...describe(statement),
        '',
        'Not proven by it:',
        ...unproven.map((one) => `  - ${sanitizeLine(one)}`),
      );
    }
    return undefined;
  });
}

/** Where the history of the manifest's session was cut, if this home has the session. */
async function cutOf(context: Context, { predicate }: ManifestStatement): Promise<KnownCut | null> {
  const session = predicate.session.id;
  try {
    const { events } = await context.call('session/events', { session, type: 'history.cut' });
    const last = events.at(-1);
    const cut = last === undefined ? null : parseEvent(last);
    return last !== undefined && cut?.type === 'history.cut' ? { seq: cut.data.seq, at: last.at } : null;
  } catch (error) {
    // It was deleted, or is of another home.
    if (HoldfastError.from(error).code === 'not_found') return null;
    throw error;
  }
}

function registerDiff(registry: Registry, group: Group): void {
  const command = registry.command(group, {
    usage: 'diff <a> [b]',
    description:
      'compare two manifests (saved files or sessions), or the last stored manifest of a session with its current state; signatures are not checked',
    operands: ['session', 'session'],
    examples: [
      'holdfast manifest diff before.manifest.json default',
      'holdfast manifest diff default               what happened since the last snapshot, resume or handoff',
    ],
  });
  registry.setAction(command, async (context, _options, a: string, b: string | undefined) => {
    const before = b === undefined ? await lastKept(context, a) : await readManifest(context, a);
    const differences = manifestDifferences(before, await readManifest(context, b ?? a));
    if (context.json) {
      await context.printJson({ differences });
      return undefined;
    }
    if (differences.length === 0) await context.printHint('They say the same');
    await context.print(
      ...differences.map(({ path, before, after }) => {
        const name = sanitizeLine(path);
        if (before === null) return `+ ${name}: ${sanitizeLine(after ?? '')}`;
        if (after === null) return `- ${name}: ${sanitizeLine(before)}`;
        return `~ ${name}: ${sanitizeLine(before)} → ${sanitizeLine(after)}`;
      }),
    );
    return undefined;
  });
}

async function readManifest(context: Context, what: string): Promise<Manifest> {
  const statement = readUnverified(await readEnvelope(context, what));
  if (statement === null) throw notAManifest(what);
  return statement.predicate;
}

/** The newest manifest that is kept of a session. */
async function lastKept(context: Context, session: string): Promise<Manifest> {
  const [newest] = (await context.call('manifest/list', { session })).manifests;
  if (newest === undefined) {
    throw new HoldfastError('not_found', `No manifest of ${session} is stored yet`, {
      next: 'one is made with each snapshot and each resume; or compare with a saved file',
    });
  }
  const { envelope } = await context.call('manifest/show', { session, id: newest.id });
  const statement = readUnverified(JSON.stringify(envelope));
  if (statement === null) throw notAManifest(newest.id);
  return statement.predicate;
}

/** A file of this name comes before a session; an id is always a session. */
async function readEnvelope(context: Context, what: string): Promise<string> {
  const path = resolve(context.io.cwd, what);
  if (!SessionIdSchema.safeParse(what).success && (await isFile(path))) return await readText(path);
  if (what.endsWith('.json')) throw new UsageError(`there is no file ${sanitizeLine(what)}`);
  const { envelope } = await context.call('manifest/show', { session: what });
  return JSON.stringify(envelope);
}

async function ownKey(context: Context): Promise<KeyObject> {
  const { publicKey } = await context.call('manifest/key', {});
  return createPublicKey(publicKey);
}

async function keyOf(context: Context, file: string): Promise<KeyObject> {
  const path = resolve(context.io.cwd, file);
  if (!(await isFile(path))) throw new UsageError(`there is no file ${sanitizeLine(file)}`);
  const key = readPublicKey((await readText(path)).slice(0, KEY_CHARACTERS));
  if (key === null)
    throw new UsageError(
      `${sanitizeLine(file)} is not a public Ed25519 key in PEM; print one with \`holdfast manifest key\``,
    );
  return key;
}

async function isFile(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => null);
  return found?.isFile() === true;
}

/** The first megabyte and a byte: more is no envelope. */
async function readText(path: string): Promise<string> {
  const file = await open(path, 'r');
  try {
    const buffer = Buffer.alloc(ENVELOPE_CHARACTERS + 1);
    let at = 0;
    for (;;) {
      const { bytesRead } = await file.read(buffer, at, buffer.length - at, at);
      at += bytesRead;
      if (bytesRead === 0 || at === buffer.length) return buffer.toString('utf8', 0, at);
    }
  } finally {
    await file.close();
  }
}

function notAManifest(what: string): HoldfastError {
  return new HoldfastError('invalid_params', `${what} is not a manifest`, {
    next: 'save one with `holdfast manifest show SESSION --output FILE`',
  });
}

function describe({ subject, predicate: manifest }: ManifestStatement): string[] {
  const { session, snapshot, base, image, turns, egress, credentials, handoffs, history } = manifest;
  const { checks, permissions, review, changes, setup, ports } = manifest;
  const rows: [string, string][] = [
    [
      'Manifest',
      `${manifest.id}, ${manifest.madeAt}${manifest.handoff === null ? '' : `, of ${manifest.handoff}`}`,
    ],
    ['Session', `${session.profile}/${session.name} (${session.id})`],
    ...subject.map(({ name, digest }): [string, string] => [
      `Is about`,
      `${name} ${Object.values(digest).join(' ')}`,
    ]),
    ...(manifest.artifact === null ? [] : [['Artifact', manifest.artifact] satisfies [string, string]]),
    ['Snapshot', snapshot === null ? 'none' : `${snapshot.id}, ${snapshot.at}`],
    ['Began with', base === null ? 'unknown' : describeBase(base)],
    [
      'Image',
      image === null ? 'none yet' : `${image.name}${image.identity === null ? '' : ` ${image.identity}`}`,
    ],
    ...(setup === null ? [] : [['Setup', `key ${setup.key}`] satisfies [string, string]]),
    ['Model', session.model ?? 'not chosen'],
    ['Memory', manifest.memory === 0 ? 'none' : `version ${manifest.memory}`],
    ['Listening', formatOpenPorts(ports)],
    ['Credentials', credentials.map(({ name, host }) => `${name} (${host})`).join(', ') || 'none'],
    ['Turns', String(turns.total)],
    ...turns.listed
      .slice(0, LISTED_TURNS)
      .map(({ id, at, status, prompt }): [string, string] => [
        '',
        `${id}  ${at}  ${status ?? 'unfinished'}  prompt ${prompt?.sha256.slice(0, 16) ?? 'unknown'}`,
      ]),
    ...more(turns.total, Math.min(turns.listed.length, LISTED_TURNS)),
    [
      'Network',
      `${pluralize(egress.hosts, 'host')}, ${egress.allowed} allowed, ${egress.denied} denied, ${egress.failed} failed, ${formatSize(egress.bytesOut)} sent, ${formatSize(egress.bytesIn)} received`,
    ],
    ...egress.listed
      .slice(0, LISTED_HOSTS)
      .map(({ host, port, allowed, denied, bytesOut }): [string, string] => [
        '',
        `${host}:${port}  ${allowed} allowed, ${denied} denied, ${formatSize(bytesOut)} sent`,
      ]),
    ...more(egress.hosts, Math.min(egress.listed.length, LISTED_HOSTS)),
    [
      'Permissions',
      permissions === null
        ? 'unknown'
        : `${permissions.asked} asked, ${permissions.allowed} allowed, ${permissions.rejected} rejected`,
    ],
    [
      'Changed',
      changes === null ? 'unknown' : `${changes.counted}${changes.complete ? '' : ' or more'} files`,
    ],
    [
      'Review',
      review === null
        ? 'none'
        : `${review.accepted} accepted, ${review.rejected} rejected, ${review.partly} in part${review.ended ? ', ended' : ''}`,
    ],
    ['Checks', checks === null ? 'unknown' : checks.total === 0 ? 'none' : pluralize(checks.total, 'result')],
    ...(checks?.listed ?? [])
      .slice(0, LISTED_TURNS)
      .map(({ name, at, exitCode, tree }): [string, string] => [
        '',
        `${name}  ${at}  exit code ${exitCode}  tree ${tree.slice(0, 16)}`,
      ]),
    ...more(checks?.total ?? 0, Math.min(checks?.listed.length ?? 0, LISTED_TURNS)),
    ['Handoffs', handoffs.total === 0 ? 'none' : pluralize(handoffs.total, 'step')],
    ...handoffs.listed
      .slice(0, LISTED_TURNS)
      .map(({ step, at, handoff, files, released, quarantined }): [string, string] => [
        '',
        `${handoff}  ${at}  ${step}  ${pluralize(files, 'file')}, ${released} released from quarantine, ${quarantined} left in it`,
      ]),
    ...more(handoffs.total, Math.min(handoffs.listed.length, LISTED_TURNS)),
    ['History', `${pluralize(history.seq, 'event')}, the last has the hash ${history.hash}`],
  ];
  return rows.map(([name, value]) => sanitizeLine(`${name.padEnd(12)}${value}`));
}

function describeBase({ commit, branch, remote, exact, root }: NonNullable<Manifest['base']>): string {
  const from = [commit, branch, remote].filter((part) => part !== null).join(' ');
  const tree = `tree ${root.slice(0, 16)}${exact ? '' : ' (its oldest snapshot)'}`;
  return from === '' ? tree : `${from}, ${tree}`;
}

function more(total: number, shown: number): [string, string][] {
  return total > shown ? [['', `and ${total - shown} more`]] : [];
}
