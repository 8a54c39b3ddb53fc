import { createHash, createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import { z } from 'zod';
import { ENVELOPE_CHARACTERS, type Envelope, EnvelopeSchema, STATEMENT_TYPE } from './manifest.ts';

export type Opened =
  | { readonly valid: true; readonly payload: Buffer; readonly keyId: string }
  | { readonly valid: false; readonly why: string };

/** What a signature covers: the type and the payload, each with its length. */
export function preAuthenticationEncoding(type: string, payload: Uint8Array): Buffer {
  const head = `DSSEv1 ${Buffer.byteLength(type)} ${type} ${payload.length} `;
  return Buffer.concat([Buffer.from(head), payload]);
}

/** The SHA-256 of a public key in DER, hexadecimal. */
export function keyIdOf(publicKey: KeyObject): string {
  return createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest('hex');
}

/** An envelope with another type of payload than a statement. */
type Sealed<T extends string> = Omit<Envelope, 'payloadType'> & { readonly payloadType: T };

/** Signs a payload with an Ed25519 key. `type`: of the payload, default a statement. */
export function sealEnvelope<T extends string = typeof STATEMENT_TYPE>(
  payload: Uint8Array,
  privateKey: KeyObject,
  type?: T,
): Sealed<T> {
  const payloadType = (type ?? STATEMENT_TYPE) as T;
  const signature = sign(null, preAuthenticationEncoding(payloadType, payload), privateKey);
  return {
    payloadType,
    payload: Buffer.from(payload).toString('base64'),
    signatures: [{ keyid: keyIdOf(createPublicKey(privateKey)), sig: signature.toString('base64') }],
  };
}

/** Reads a public key in PEM; null if it is not one of Ed25519. A private key is refused: it must not be passed on. */
export function readPublicKey(pem: string): KeyObject | null {
  if (!pem.trimStart().startsWith('-----BEGIN PUBLIC KEY-----')) return null;
  try {
    const key = createPublicKey(pem);
    return key.asymmetricKeyType === 'ed25519' ? key : null;
  } catch {
    return null;
  }
}

/** The payload of an envelope that the owner of this key signed, or why it is none. */
export function openEnvelope(text: string, publicKey: KeyObject, type: string = STATEMENT_TYPE): Opened {
  const parsed = parseEnvelope(text, type);
  if (parsed === null) return refused('it is not a signed envelope');
  const [signature] = parsed.signatures;
  const keyId = keyIdOf(publicKey);
  if (signature === undefined) return refused('it has no signature');
  if (signature.keyid !== keyId)
    return refused(`another key signed it (${signature.keyid.slice(0, 16)}, not ${keyId.slice(0, 16)})`);
  const payload = decodeBase64(parsed.payload);
  const bytes = decodeBase64(signature.sig);
  if (payload === null || bytes === null) return refused('its payload or its signature is not base64');
  if (!verify(null, preAuthenticationEncoding(parsed.payloadType, payload), publicKey, bytes))
    return refused('its signature does not match: it was changed after it was signed');
  return { valid: true, payload, keyId };
}

/** Null if the text is no envelope. Nothing is verified. */
export function parseEnvelope<T extends string = typeof STATEMENT_TYPE>(
  text: string,
  type?: T,
): Sealed<T> | null {
  if (text.length > ENVELOPE_CHARACTERS) return null;
  try {
    const payloadType = z.literal((type ?? STATEMENT_TYPE) as T);
    return EnvelopeSchema.extend({ payloadType }).parse(JSON.parse(text));
  } catch {
    return null;
  }
}

/** Null unless it is exactly how these bytes are written, so that one payload has one text. */
export function decodeBase64(text: string): Buffer | null {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : null;
}

function refused(why: string): Opened {
  return { valid: false, why };
}
