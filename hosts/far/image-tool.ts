import type { Duplex } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';

const MAX_SAID = 4000;

/**
 * Reads the answer of an image tool: its output, without the last line. Errors: what it said; `timeout` after `timeoutMs`,
 * where a Docker that hangs would keep a person waiting.
 */
export async function readImageTool(stream: Duplex, what: string, timeoutMs?: number): Promise<string> {
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => void stream.destroy(notAnswering(what, timeoutMs)), timeoutMs);
  try {
    return await readAnswer(stream, what);
  } finally {
    clearTimeout(timer);
  }
}

function notAnswering(what: string, ms: number): HoldfastError {
  return new HoldfastError('timeout', what, {
    why: `its Docker did not answer within ${Math.ceil(ms / 1000)} s`,
    next: 'see whether `docker version` works there',
  });
}

async function readAnswer(stream: Duplex, what: string): Promise<string> {
  let text = '';
  for await (const chunk of stream) {
    text += String(chunk);
    if (text.length > 1024 * 1024)
      throw new HoldfastError('protocol_error', `${what}: the answer is too long`);
  }
  const lines = text.trimEnd().split('\n');
  const last = parseEnd(lines.pop());
  if (last === undefined) throw new HoldfastError('connection_closed', `${what}: the connection ended`);
  if (last.code === 0) return lines.join('\n');
  const why = last.said
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .slice(-3)
    .join('; ');
  throw new HoldfastError('engine_error', what, {
    why: why === '' ? `it ended with ${String(last.code)}` : why,
  });
}

function parseEnd(line: string | undefined): { readonly code: unknown; readonly said: string } | undefined {
  try {
    const parsed: unknown = JSON.parse(line ?? '');
    if (typeof parsed === 'object' && parsed !== null && 'code' in parsed && 'said' in parsed)
      return { code: parsed.code, said: String(parsed.said).slice(0, MAX_SAID) };
  } catch {
    // The connection was cut.
  }
  return undefined;
}
