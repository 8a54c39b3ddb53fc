import { StringDecoder } from 'node:string_decoder';
import type { Turn } from '../protocol/entities.ts';
import { type Runner, TURN_KINDS, type TurnKind, findTurnKind } from '../protocol/turn-kinds.ts';
import type { Context } from './context.ts';
import { sanitizeLines } from './render/text.ts';

/** Where the output of a turn is written as it arrives. Each method resolves when the bytes have been written. */
export interface TurnSinks {
  stdout(bytes: Buffer): Promise<void>;
  stderr(bytes: Buffer): Promise<void>;
  /** No more will come. */
  end(): Promise<void>;
  /** The standard output of a command agent, if it is part of the JSON result; otherwise null. */
  collected(): { readonly text: string; readonly truncated: boolean } | null;
}

/** With --json, output of a command beyond this is dropped, and the document says so (`outputTruncated`). */
export const COLLECTED_BYTES = 8 * 2 ** 20;

export function createSinks(context: Context, runs: Runner): TurnSinks {
  if (runs === 'worker') return handlerSinks(context);
  return context.json ? collectingSinks(context) : commandSinks(context);
}

/** Passes the output of a command through unchanged. */
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
  let collected = 0;
  let truncated = false;
  return {
    async stdout(bytes) {
      const part = bytes.subarray(0, COLLECTED_BYTES - collected);
      truncated ||= part.length < bytes.length;
      collected += part.length;
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

/** The result of a handler is its return value. What it prints goes to standard error, dimmed on a terminal. */
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

/** The kind of agent of a profile; undefined if the profile is not deployed. */
export async function fetchAgentKind(context: Context, profile: string): Promise<TurnKind | undefined> {
  const { profiles } = await context.call('profile/list', {});
  return findTurnKind(profiles.find((one) => one.name === profile)?.agent.protocol);
}

/** How a turn of a kind runs. Of an agent whose profile was deleted, the output of its turn says so. */
export function runnerOf(kind: TurnKind | undefined, turn: Turn): Runner {
  if (kind !== undefined) return TURN_KINDS[kind].runs;
  return turn.worker !== null || turn.bytes.result > 0 || turn.output !== null ? 'worker' : 'program';
}
