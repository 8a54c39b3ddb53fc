/** A message's headers as Node's parser gives them: name and value in turn. */
export interface RawMessage {
  readonly rawHeaders: readonly string[];
}

/** Hop-by-hop headers (RFC 9110 §7.6.1) and headers for the proxy only. */
const CONNECTION_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Headers without those of the connection, those that it names, and those in `without` (lower case). */
export function endToEnd(raw: readonly string[], without: Iterable<string>): string[] {
  const dropped = new Set(without);
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) pairs.push([raw[at] ?? '', raw[at + 1] ?? '']);
  const named = new Set(
    pairs
      .filter(([name]) => name.toLowerCase() === 'connection')
      .flatMap(([, value]) => value.split(',').map((one) => one.trim().toLowerCase()))
      // A client must not remove the headers that delimit its message.
      .filter((name) => name !== 'content-length' && name !== 'host'),
  );
  return pairs
    .filter(([name]) => {
      const lower = name.toLowerCase();
      return !CONNECTION_HEADERS.has(lower) && !named.has(lower) && !dropped.has(lower);
    })
    .flat();
}

/**
 * Anything about the length of a body that two programs could read differently. Node's parser refuses most of it
 * earlier.
 */
export function framingProblem(message: RawMessage): string | null {
  const lengths = headerValues(message, 'content-length');
  const encodings = headerValues(message, 'transfer-encoding');
  if (lengths.length > 1) return 'it has more than one Content-Length';
  if (lengths.length > 0 && encodings.length > 0) return 'it has both Content-Length and Transfer-Encoding';
  if (encodings.length > 1 || (encodings[0] ?? 'chunked').toLowerCase() !== 'chunked')
    return 'its Transfer-Encoding is not chunked';
  if (lengths[0] !== undefined && !/^\d{1,15}$/.test(lengths[0])) return 'its Content-Length is not a number';
  return null;
}

/** The values of all headers of this name (lower case), in order. */
export function headerValues({ rawHeaders }: RawMessage, wanted: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === wanted);
}
