import type { KeyObject } from 'node:crypto';
import { type Opened, decodeBase64, openEnvelope, parseEnvelope } from './envelope.ts';
import { type Manifest, type ManifestStatement, ManifestStatementSchema } from './manifest.ts';

export type VerifiedManifest =
  | { readonly valid: true; readonly keyId: string; readonly statement: ManifestStatement }
  | Extract<Opened, { valid: false }>;

/** Checks the signature of a manifest and its form. Needs nothing but the text and the public key. */
export function verifyManifest(text: string, publicKey: KeyObject): VerifiedManifest {
  const opened = openEnvelope(text, publicKey);
  if (!opened.valid) return opened;
  const statement = parseStatement(opened.payload);
  if (statement === null)
    return { valid: false, why: 'what was signed is not a manifest that this version knows' };
  return { valid: true, keyId: opened.keyId, statement };
}

/** The statement in an envelope whose signature nobody checked. Null if it is not a manifest. */
export function readUnverified(text: string): ManifestStatement | null {
  const payload = decodeBase64(parseEnvelope(text)?.payload ?? '');
  return payload === null ? null : parseStatement(payload);
}

/** Where the session of a manifest was cut since, as its home says: events up to `seq` are not there any more. */
export interface KnownCut {
  readonly seq: number;
  /** ISO 8601. */
  readonly at: string;
}

/** What a valid signature does not say, each as a sentence. */
export function unprovenBy({ subject, predicate }: ManifestStatement, cut: KnownCut | null = null): string[] {
  const { turns, egress, handoffs, history } = predicate;
  const commit = subject.find(({ name }) => name === 'commit')?.digest['gitCommit'];
  const isCut =
    turns.listed.length < turns.total ||
    egress.listed.length < egress.hosts ||
    handoffs.listed.length < handoffs.total;
  return [
    'that the machine was honest: whoever has its private key can sign anything',
    'when it was made: the time is that of the machine',
    'that it is the newest, or that none is missing',
    historyUnproven(history, cut),
    'which program ran inside the sandbox, and what it sent to allowed hosts: bytes are counted, not read',
    'the model of a turn: it is what the agent said',
    ...(commit === undefined
      ? []
      : [`that your repository has commit ${commit} with this tree: git rev-parse ${commit}^{tree}`]),
    ...(history.first > 1
      ? [
          `anything about the ${history.first - 1} events before event ${history.first}: they were too many to be listed, or had been removed`,
        ]
      : []),
    ...(isCut ? ['what is only counted: some turns, hosts or handoffs are not listed'] : []),
  ];
}

function historyUnproven({ seq, hash }: Manifest['history'], cut: KnownCut | null): string {
  const end = `${hash.slice(0, 16)} at event ${seq}`;
  return cut !== null && seq < cut.seq
    ? `that the history ended in ${end}: the events up to ${cut.seq} were removed on ${cut.at.slice(0, 10)}, so nobody can recompute it`
    : `that the history is still there and ends in ${end}: \`holdfast session verify\` recomputes it where the session is, unless that event was removed since (\`history cut\`)`;
}

export interface ManifestDifference {
  /** Dotted path in the manifest; items of lists by their name or id. */
  readonly path: string;
  /** JSON texts; null where the other has no such field. */
  readonly before: string | null;
  readonly after: string | null;
}

/** Fields that differ, by path. The id and the time of a manifest always do, and are left out. */
export function manifestDifferences(before: Manifest, after: Manifest): ManifestDifference[] {
  const left = fieldsOf(before);
  const right = fieldsOf(after);
  return [...new Set([...left.keys(), ...right.keys()])]
    .filter((path) => path !== 'id' && path !== 'madeAt' && left.get(path) !== right.get(path))
    .sort((a, b) => (a < b ? -1 : 1))
    .map((path) => ({ path, before: left.get(path) ?? null, after: right.get(path) ?? null }));
}

function fieldsOf(manifest: Manifest): Map<string, string> {
  const fields = new Map<string, string>();
  const visit = (path: string, value: unknown): void => {
    if (typeof value !== 'object' || value === null) {
      fields.set(path, JSON.stringify(value));
      return;
    }
    const members: [string, unknown][] = Array.isArray(value)
      ? value.map((item: unknown, at) => [nameOf(item, at), item])
      : Object.entries(value);
    for (const [name, member] of members) visit(path === '' ? name : `${path}.${name}`, member);
  };
  visit('', manifest);
  return fields;
}

function nameOf(item: unknown, at: number): string {
  if (typeof item !== 'object' || item === null) return String(at);
  const { id, handoff, step, host, port, name } = item as Readonly<Record<string, unknown>>;
  if (typeof id === 'string') return id;
  if (typeof handoff === 'string') return `${handoff}.${String(step)}`;
  if (typeof name === 'string') return name;
  return typeof host === 'string' ? `${host}:${String(port)}` : String(at);
}

function parseStatement(payload: Buffer): ManifestStatement | null {
  try {
    return ManifestStatementSchema.parse(JSON.parse(payload.toString('utf8')));
  } catch {
    return null;
  }
}
