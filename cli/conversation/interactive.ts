import type { Context } from '../context.ts';
import { EXIT } from '../failure.ts';
import { sanitizeLine } from '../render/text.ts';
import { readLine } from '../terminal/questions.ts';

/** Prompts a session line by line until the end of the input, or ^C at the prompt. `send` runs one turn. */
export async function converse(
  context: Context,
  sessionName: string,
  send: (input: Buffer) => Promise<unknown>,
): Promise<number> {
  await context.printHint(`Conversation with ${sanitizeLine(sessionName)}; ^C cancels a turn, ^D leaves`);
  for (;;) {
    const line = await readPrompt(context);
    if (line === null) return EXIT.done;
    if (line.trim() !== '') await send(Buffer.from(line));
  }
}

async function readPrompt(context: Context): Promise<string | null> {
  const stop = new AbortController();
  const release = context.handleInterrupts(() => stop.abort());
  try {
    await context.stderr.write(context.stderrStyle.bold('> '));
    const line = await readLine(context, stop.signal);
    if (line === null) await context.stderr.write('\n');
    return line;
  } finally {
    release();
  }
}
