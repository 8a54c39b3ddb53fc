import { sanitize } from '../base/sanitize.ts';

/** What ssh asks. The words of a prompt may be the other machine's. */
export type SshQuestion =
  /** Whether a host key that ssh does not know is the right one. `key`: its kind and fingerprint. */
  | { readonly kind: 'hostKey'; readonly place: string; readonly key: string }
  /** A passphrase, a password or a code. */
  | { readonly kind: 'secret'; readonly prompt: string };

const MAX_PROMPT = 300;
/**
 * The whole text of OpenSSH's own question. Prompts of the other machine stand in it nowhere: OpenSSH puts `(user@host) `
 * before them, so that none begins like this.
 */
const HOST_KEY =
  /^The authenticity of host '([^'\n]{1,600})' can't be established\.\n(?:.*\n)*?(\S{1,40} key fingerprint is (?:SHA256|MD5):[A-Za-z0-9+/=:]{16,100})\.?\n[^]*\(yes\/no(?:\/\[fingerprint\])?\)\? ?$/;

/** Reads a question. Everything that is not OpenSSH's question about a host key is answered hidden. */
export function readSshQuestion(text: string): SshQuestion {
  const [, place, key] = HOST_KEY.exec(text) ?? [];
  if (place !== undefined && key !== undefined)
    return { kind: 'hostKey', place: sanitize(place), key: sanitize(key) };
  const prompt = sanitize(text.trim(), MAX_PROMPT);
  return { kind: 'secret', prompt: prompt === '' ? 'ssh asks for a secret' : prompt };
}
