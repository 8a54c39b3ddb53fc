import { StringDecoder } from 'node:string_decoder';
import type { Turn } from '../protocol/entities.ts';
import type { Context } from './context.ts';
import { sanitizeLines } from './render/text.ts';

/** Where a turn's output goes while it arrives. Each resolves when the reader has taken it. */
export interface TurnSinks {
  stdout(bytes: Buffer): Promise<void>;
  stderr(bytes: Buffer): Promise<void>;
  /** No more will come. */
  end(): Promise<void>;
  /** What a command agent wrote to its standard output, where that is part of the result; null otherwise. */
  collected(): { readonly text: string; readonly truncated: boolean } | null;
}

/** With --json a command's output is one string of the document; more than this is left out, and the document says so. */
export const COLLECTED_BYTES = 8 * 2 ** 20;

export type AgentKind = 'handler' | 'command';

export function createSinks(context: Context, kind: AgentKind): TurnSinks {
  if (kind === 'handler') return handlerSinks(context);
  return context.json ? collectingSinks(context) : commandSinks(context);
}

/** A command's output is its own: bytes as they are. */
function commandSinks(context: Context): TurnSinks {
  return {
    async stdout(bytes) {
      context.progress.end();
      await context.stdout.write(bytes);
    },
    async stderr(bytes) {
      context.progress.end();
      await context.stderr.write(bytes);
    },
    end: async () => undefined,
    collected: () => null,
  };
}

function collectingSinks(context: Context): TurnSinks {
  const chunks: Buffer[] = [];
  let kept = 0;
  let truncated = false;
  return {
    async stdout(bytes) {
      const part = bytes.subarray(0, COLLECTED_BYTES - kept);
      truncated ||= part.length < bytes.length;
      kept += part.length;
      if (part.length > 0) chunks.push(part);
    },
    async stderr(bytes) {
      context.progress.end();
      await context.stderr.write(bytes);
    },
    end: async () => undefined,
    collected: () => ({ text: Buffer.concat(chunks).toString('utf8'), truncated }),
  };
}

/** A handler's result is what it returned; what it printed meanwhile is a remark, dimmed where a person reads it. */
function handlerSinks(context: Context): TurnSinks {
  const decoders = [new StringDecoder('utf8'), new StringDecoder('utf8')] as const;
  const remark = (decoder: StringDecoder) => async (bytes: Buffer) => {
    context.progress.end();
    if (!context.stderr.isTTY) await context.stderr.write(bytes);
    else await show(decoder.write(bytes));
  };
  const show = async (text: string) => {
    if (text !== '') await context.stderr.write(context.stderrStyle.dim(sanitizeLines(text)));
  };
  return {
    stdout: remark(decoders[0]),
    stderr: remark(decoders[1]),
    async end() {
      for (const decoder of decoders) await show(decoder.end());
    },
    collected: () => null,
  };
}

/** The kind of agent a session's profile has, as far as it can still be told. */
export async function fetchAgentKind(context: Context, profile: string): Promise<AgentKind | undefined> {
  const { profiles } = await context.call('profile/list', {});
  const protocol = profiles.find((one) => one.name === profile)?.agent.protocol;
  return protocol === 'handler' || protocol === 'command' ? protocol : undefined;
}

/** The kind of an agent whose profile has gone, by what its turn left. */
export function inferAgentKind(turn: Turn): AgentKind {
  return turn.worker !== null || turn.bytes.result > 0 || turn.output !== null ? 'handler' : 'command';
}
