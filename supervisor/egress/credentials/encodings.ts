/** Bytes of a secret that are searched for: enough that nothing else has them, few enough to search fast. */
const WINDOW_BYTES = 48;
/** A shorter pattern would be found in everything. */
const SHORTEST = 6;

/**
 * The forms in which an answer that repeats a secret is likely to have it: plain, base64 at each alignment (both
 * alphabets), hex, percent-encoded, and as a JSON string. Of a long secret the middle is taken, because its beginning may
 * be that of other values as well (a token's header, a key file's first line).
 */
export function encodedForms(secret: Buffer): Buffer[] {
  const start = Math.max(0, Math.floor((secret.length - WINDOW_BYTES) / 2));
  const window = secret.subarray(start, start + WINDOW_BYTES);
  const forms = [
    window,
    ...base64Forms(window),
    ...[window.toString('hex')].flatMap((hex) => [hex, hex.toUpperCase()]),
    ...percentForms(window),
    ...jsonForms(window),
  ].map((form) => Buffer.from(form));
  const distinct = new Map(forms.map((form) => [form.toString('latin1'), form]));
  return [...distinct.values()].filter((form) => form.length >= SHORTEST);
}

/** Without the characters at both ends that depend on the bytes beside it. */
function base64Forms(window: Buffer): string[] {
  return [0, 1, 2].flatMap((before) => {
    const shifted = Buffer.concat([Buffer.alloc(before), window]);
    const first = Math.ceil((before * 8) / 6);
    const end = Math.floor((shifted.length * 8) / 6);
    return [shifted.toString('base64').slice(first, end), shifted.toString('base64url').slice(first, end)];
  });
}

function percentForms(window: Buffer): string[] {
  const percent = (byte: number): string => `%${byte.toString(16).padStart(2, '0').toUpperCase()}`;
  const of = (plain: RegExp, space = '%20'): string =>
    Array.from(window, (byte) => {
      const character = String.fromCharCode(byte);
      if (character === ' ') return space;
      return plain.test(character) ? character : percent(byte);
    }).join('');
  const forms = [
    of(/[A-Za-z0-9\-_.~]/),
    of(/[A-Za-z0-9\-_.~!*'()]/),
    of(/[A-Za-z0-9*\-._]/, '+'),
    Array.from(window, percent).join(''),
  ];
  return forms.flatMap((form) => [form, form.replaceAll(/%[0-9A-F]{2}/g, (hex) => hex.toLowerCase())]);
}

function jsonForms(window: Buffer): string[] {
  const text = window.toString('utf8');
  // The window may have cut a character in two.
  if (text.includes('\ufffd')) return [];
  const quoted = JSON.stringify(text).slice(1, -1);
  const escape = (unit: number): string => `\\u${unit.toString(16).padStart(4, '0')}`;
  const units = (from: string, which: RegExp): string =>
    Array.from({ length: from.length }, (_, at) => from.charAt(at))
      .map((unit) => (which.test(unit) ? escape(unit.charCodeAt(0)) : unit))
      .join('');
  const forms = [quoted, quoted.replaceAll('/', '\\/'), units(quoted, /[^\x20-\x7e]/), units(text, /[^]/)];
  return forms.flatMap((form) => [
    form,
    form.replaceAll(/\\u[0-9a-f]{4}/g, (unit) => `\\u${unit.slice(2).toUpperCase()}`),
  ]);
}
