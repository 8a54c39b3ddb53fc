import { randomInt, verify } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { preAuthenticationEncoding, readPublicKey, sealEnvelope } from '../../../protocol/envelope.ts';
import { ENVELOPE_CHARACTERS, EnvelopeSchema } from '../../../protocol/manifest.ts';
import { manifestDifferences, unprovenBy, verifyManifest } from '../../../protocol/manifest-verification.ts';
import { keyPair, manifest, signed, statement } from '../../fixtures/manifest.ts';
import { SOAK } from '../../setup/run-length.ts';

const { privateKey, publicKey, pem } = keyPair();

describe('an envelope', () => {
  test('what is signed has the lengths of both parts, as DSSE says', () => {
    expect(
      preAuthenticationEncoding('http://example.com/HelloWorld', Buffer.from('hello world')).toString(),
    ).toBe('DSSEv1 29 http://example.com/HelloWorld 11 hello world');
    expect(preAuthenticationEncoding('é', Buffer.from('ü')).toString()).toBe('DSSEv1 2 é 2 ü');
  });

  test('has an Ed25519 signature that a stranger can check', () => {
    const payload = Buffer.from('{}');
    const { signatures, payloadType, payload: written } = sealEnvelope(payload, privateKey);
    const signature = Buffer.from(signatures[0]?.sig ?? '', 'base64');
    const signedBytes = Buffer.from(`DSSEv1 ${payloadType.length} ${payloadType} 2 {}`);
    expect(written).toBe('e30=');
    expect(verify(null, signedBytes, publicKey, signature)).toBe(true);
  });

  test('only a public Ed25519 key is read', () => {
    expect(readPublicKey(pem)?.asymmetricKeyType).toBe('ed25519');
    expect(readPublicKey(String(privateKey.export({ type: 'pkcs8', format: 'pem' })))).toBeNull();
    expect(readPublicKey('-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n')).toBeNull();
    expect(readPublicKey('')).toBeNull();
  });
});

describe('verification', () => {
  test('says what was signed', () => {
    expect(verifyManifest(signed(privateKey), publicKey)).toMatchObject({
      valid: true,
      statement: statement(),
    });
  });

  test('a change of any byte is found', () => {
    const bytes = Buffer.from(signed(privateKey));
    const accepted: number[] = [];
    // Other bytes in each run; the step has no divisor in common with the three kinds of changes.
    for (let at = SOAK ? 0 : randomInt(4); at < bytes.length - 1; at += SOAK ? 1 : 4) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ ([1, 2, 32][at % 3] ?? 1);
      if (verifyManifest(changed.toString('utf8'), publicKey).valid) accepted.push(at);
    }
    expect(accepted).toEqual([]);
    expect(verifyManifest(bytes.toString('utf8'), publicKey).valid).toBe(true);
  });

  test('a part that is missing, added or taken from another envelope is found', () => {
    const text = signed(privateKey);
    const envelope = EnvelopeSchema.parse(JSON.parse(text));
    const other = EnvelopeSchema.parse(JSON.parse(signed(privateKey, statement({ memory: 3 }))));
    const [signature] = envelope.signatures;
    for (const changed of [
      { ...envelope, payload: other.payload },
      { ...envelope, signatures: other.signatures },
      { ...envelope, signatures: [] },
      { ...envelope, signatures: [signature, signature] },
      { ...envelope, signatures: [{ ...signature, sig: '' }] },
      { ...envelope, signatures: [{ ...signature, sig: `${signature?.sig ?? ''}\n` }] },
      { ...envelope, payload: ` ${envelope.payload}` },
      { ...envelope, payload: '' },
      { ...envelope, payloadType: 'text/plain' },
      { ...envelope, more: 1 },
      null,
    ])
      expect(verifyManifest(JSON.stringify(changed), publicKey).valid).toBe(false);
    for (let length = 0; length < text.length - 1; length += 37)
      expect(verifyManifest(text.slice(0, length), publicKey).valid).toBe(false);
    expect(verifyManifest(' '.repeat(ENVELOPE_CHARACTERS) + text, publicKey).valid).toBe(false);
  });

  test('another key is named, also if the envelope claims to be of ours', () => {
    const stranger = keyPair();
    const text = signed(stranger.privateKey);
    expect(verifyManifest(text, publicKey)).toMatchObject({ valid: false, why: /another key/ });
    const { signatures } = EnvelopeSchema.parse(JSON.parse(signed(privateKey)));
    const envelope = EnvelopeSchema.parse(JSON.parse(text));
    const [own] = signatures;
    const [theirs] = envelope.signatures;
    const claimed = { ...envelope, signatures: [{ ...theirs, keyid: own?.keyid }] };
    expect(verifyManifest(JSON.stringify(claimed), publicKey)).toMatchObject({
      valid: false,
      why: /signature does not match/,
    });
  });

  test('something else that the key signed is no manifest', () => {
    for (const what of [{}, { ...statement(), predicateType: 'urn:other' }, 'text', null])
      expect(verifyManifest(signed(privateKey, what), publicKey)).toMatchObject({
        valid: false,
        why: /not a manifest/,
      });
  });

  test('what it does not prove depends on what it says', () => {
    const all = unprovenBy(statement()).join('\n');
    expect(all).toMatch(/the machine was honest[\s\S]*git rev-parse/);
    expect(all).not.toMatch(/too many|only counted/);
    const { turns } = manifest();
    const cut = { turns: { ...turns, total: 9 }, history: { ...manifest().history, first: 5 } };
    expect(unprovenBy(statement(cut)).join('\n')).toMatch(/the 4 events before event 5[\s\S]*only counted/);
  });
});

test('a comparison names the fields that differ, whatever their order', () => {
  const before = manifest();
  const [turn] = before.turns.listed;
  if (turn === undefined) throw new Error('no turn');
  const second = { ...turn, id: 'turn-bbbbbbbbbbbbbbbb' };
  const after = manifest({
    id: 'man-bbbbbbbbbbbbbbbb',
    madeAt: '2026-03-02T11:00:00.000Z',
    memory: 3,
    turns: { total: 2, listed: [second, turn] },
    credentials: [],
  });
  const found = manifestDifferences(before, after);
  expect(found).toContainEqual({ path: 'memory', before: '2', after: '3' });
  expect(found).toContainEqual({
    path: 'credentials.anthropic.host',
    before: '"api.anthropic.com"',
    after: null,
  });
  const turns = found.filter(({ path }) => path.startsWith('turns.listed.'));
  expect(turns.length).toBeGreaterThan(0);
  expect(turns.every(({ path, before: old }) => path.includes(second.id) && old === null)).toBe(true);
  expect(manifestDifferences(before, before)).toEqual([]);
});
