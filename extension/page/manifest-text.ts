import type { KeyObject } from 'node:crypto';
import type { ManifestStatement } from '../../protocol/manifest.ts';
import { unprovenBy, verifyManifest } from '../../protocol/manifest-verification.ts';
import { formatOpenPorts } from '../../protocol/open-ports.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { manifestFacts } from './manifest-facts.ts';

const LABEL_WIDTH = 18;
const MAX_CHECKS = 10;

/**
 * A signed envelope as a text that people read: whether its signature holds, what it says, and what it does not prove. What
 * another key signed, or somebody changed, is not shown. `keyOf`: whose key it is, as `this machine`.
 */
export function manifestText(envelope: string, publicKey: KeyObject, keyOf: string): string {
  const verified = verifyManifest(envelope, publicKey);
  if (!verified.valid) return `NOT VALID for the key of ${keyOf}: ${verified.why}.\n`;
  const lines = [
    `Valid: signed with the key ${verified.keyId.slice(0, 16)} of ${keyOf}, and unchanged since.`,
    '',
    ...describe(verified.statement),
    '',
    'Not proven by it:',
    ...unprovenBy(verified.statement).map((one) => `  - ${one}`),
  ];
  // Names in it are those that an agent or a person chose.
  return `${lines.map((line) => sanitizeLine(line)).join('\n')}\n`;
}

function describe({ subject, predicate }: ManifestStatement): string[] {
  const { id, madeAt, handoff, session, credentials, egress, checks, review, ports } = predicate;
  const rows: (readonly [string, string])[] = [
    ['Manifest', handoff === null ? id : `${id}, of ${handoff}`],
    ['Made', madeAt],
    ['Session', `${session.name} (${session.id})`],
    ...subject.map(({ name, digest }) => ['Is about', [name, ...Object.values(digest)].join(' ')] as const),
    // The editor marks a middle dot as a letter that looks like another one.
    ...manifestFacts(predicate).map(({ label, value }) => [label, value.replaceAll(' · ', ', ')] as const),
    ['Listening', formatOpenPorts(ports)],
    ['Credentials', credentials.map(({ name, host }) => `${name} (${host})`).join(', ') || 'none'],
    ...(review === null
      ? []
      : [
          [
            'Review',
            `${review.accepted} accepted, ${review.rejected} rejected, ${review.partly} in part`,
          ] as const,
        ]),
    ...(checks?.listed ?? [])
      .slice(0, MAX_CHECKS)
      .map(({ name, exitCode, at }) => ['Check', `${name}: exit code ${exitCode}, ${at}`] as const),
  ];
  const hosts = egress.listed.map(
    ({ host, port, allowed, denied, failed }) =>
      `  ${host}:${port}  ${allowed} allowed, ${denied} denied, ${failed} failed`,
  );
  const left = egress.hosts - egress.listed.length;
  return [
    ...rows.map(([label, value]) => `${label.padEnd(LABEL_WIDTH)}${value}`),
    ...(hosts.length === 0 ? [] : ['', 'Hosts:', ...hosts]),
    ...(left > 0 ? [`  and ${formatCount(left, 'host')} more`] : []),
  ];
}

function sanitizeLine(line: string): string {
  return sanitize(line, 10_000);
}
