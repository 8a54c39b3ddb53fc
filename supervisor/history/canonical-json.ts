/**
 * Canonical JSON (RFC 8785): keys in the order of their UTF-16 code units, no spaces, strings and numbers as
 * JSON.stringify writes them. Undefined members are omitted, as JSON.stringify does.
 */
export function canonicalJson(value: unknown): string {
  if (value === null || typeof value !== 'object') return scalar(value);
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item)).join(',')}]`;
  let text = '';
  const members = value as Readonly<Record<string, unknown>>;
  for (const key of Object.keys(members).sort()) {
    const member = members[key];
    if (member === undefined) continue;
    text += `${text === '' ? '' : ','}${JSON.stringify(key)}:${canonicalJson(member)}`;
  }
  return `{${text}}`;
}

/** Undefined has no JSON form; inside an array it becomes null. */
function scalar(value: unknown): string {
  return value === undefined ? 'null' : JSON.stringify(value);
}
