import { createHash } from 'node:crypto';
import { keyIdOf, openEnvelope, readPublicKey, sealEnvelope } from '../../protocol/envelope.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Envelope } from '../../protocol/manifest.ts';
import { MOVE_TYPE, type MovePredicate, MoveStatementSchema, type MoveStep } from '../../protocol/moves.ts';
import type { HostKey } from '../manifests/host-key.ts';

/** A statement is far smaller. */
const MOST_BYTES = 4096;

/** Signs a step of a move with the key of this home. */
export function signStep(predicate: MovePredicate, key: Pick<HostKey, 'privateKey'>): Envelope {
  const statement = {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [{ name: 'move', digest: { sha256: subjectOf(predicate.move) } }],
    predicateType: MOVE_TYPE,
    predicate,
  };
  return sealEnvelope(Buffer.from(JSON.stringify(MoveStatementSchema.parse(statement))), key.privateKey);
}

/** The step that the owner of this key signed. Errors: `permission_denied` for anything else. */
export function readStep(envelope: Envelope, publicKey: string, step: MoveStep): MovePredicate {
  const key = readPublicKey(publicKey);
  if (key === null) throw refused(step, 'the key of the other host is not a public Ed25519 key');
  const opened = openEnvelope(JSON.stringify(envelope), key);
  if (!opened.valid) throw refused(step, opened.why);
  const predicate = parsePredicate(opened.payload);
  if (predicate?.step !== step) throw refused(step, 'it says something else');
  return predicate;
}

/** A step that this home signed and keeps: its database is trusted, and its key may have been replaced since. Errors: as `readStep`. */
export function readOwnStep(envelope: Envelope, step: MoveStep): MovePredicate {
  const predicate = parsePredicate(Buffer.from(envelope.payload, 'base64'));
  if (predicate?.step !== step) throw refused(step, 'it says something else');
  return predicate;
}

/** Errors: `permission_denied`. */
export function keyIdOfPem(publicKey: string): string {
  const key = readPublicKey(publicKey);
  if (key === null) throw refused('offer', 'the key of the other host is not a public Ed25519 key');
  return keyIdOf(key);
}

function parsePredicate(payload: Buffer): MovePredicate | null {
  if (payload.length > MOST_BYTES) return null;
  try {
    const { predicate, subject } = MoveStatementSchema.parse(JSON.parse(payload.toString('utf8')));
    return subject[0]?.digest.sha256 === subjectOf(predicate.move) ? predicate : null;
  } catch {
    return null;
  }
}

/** Whether two steps are of the same move of the same session between the same homes. `to.session` and `bundle` come up on the way. */
export function isSameMove(one: MovePredicate, other: MovePredicate): boolean {
  return (
    one.move === other.move &&
    one.from.home === other.from.home &&
    one.from.session === other.from.session &&
    one.to.home === other.to.home &&
    one.to.key === other.to.key
  );
}

export function refused(step: MoveStep, why: string): HoldfastError {
  return new HoldfastError('permission_denied', `The session was not moved: its ${step} is not valid`, {
    why,
    next: 'repeat `holdfast session move`; if that does not help, keep the session with `holdfast session move SESSION --abort`',
  });
}

function subjectOf(move: string): string {
  return createHash('sha256').update(move).digest('hex');
}
