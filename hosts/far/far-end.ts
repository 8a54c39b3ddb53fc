import { spawn } from 'node:child_process';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { dialOrStart } from '../../protocol/client/connect.ts';
import { joinStreams } from '../base/join-streams.ts';
import { serveStreams } from '../base/streams.ts';
import type { FarAnswer, FarService } from '../base/streams.ts';

export interface FarEndOptions {
  readonly home: string;
  /** Starts a supervisor. */
  readonly command: readonly string[];
  /** Where the bundle of the program is. */
  readonly program: string;
}

const MAX_ERROR_CHARACTERS = 4000;

/** What `connect --streams` does on the other machine: every stream reaches the supervisor, or our images. */
export async function serveFarEnd(stream: Duplex, { home, command, program }: FarEndOptions): Promise<void> {
  await serveStreams(stream, {
    '/supervisor': async ({ start }) => {
      const socket = await dialOrStart({ home, command, start: start === 'never' ? 'never' : 'auto' });
      if (socket === undefined) return undefined;
      return { serve: (incoming) => joinStreams(incoming, socket) };
    },
    '/images/missing': imageTool(program, ['--missing']),
    '/images/load': imageTool(program, ['--load']),
    '/images/build': imageTool(program, []),
  });
}

/** Runs the program that builds, lists and loads our images, and connects its standard streams. */
function imageTool(program: string, args: readonly string[]): FarService {
  return async (): Promise<FarAnswer> => ({
    serve: async (incoming) => {
      const child = spawn(process.execPath, [join(program, 'setup/images.cjs'), ...args], {
        cwd: '/',
        stdio: ['pipe', 'pipe', 'pipe'],
      });
      let errorOutput = '';
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        errorOutput = (errorOutput + text).slice(-MAX_ERROR_CHARACTERS);
      });
      incoming.once('close', () => child.kill('SIGTERM'));
      const exit = new Promise<number | null>((resolve, reject) => {
        child.once('error', reject);
        child.once('close', resolve);
      });
      // The program may end before its input: what comes then is read and dropped, so that its answer arrives all the same.
      child.stdin.on('error', () => undefined).once('close', () => incoming.resume());
      incoming.pipe(child.stdin);
      for await (const chunk of child.stdout) incoming.write(chunk);
      const code = await exit;
      // The last line says how it went: an answer that began can have no status of its own. `readImageTool` parses it, also
      // that of another build: its names do not change.
      incoming.end(`\n${JSON.stringify({ code, said: code === 0 ? '' : errorOutput })}\n`);
    },
  });
}
