import { CancellationTokenSource, window } from 'vscode';
import type { AskPerson } from '../connection/remote-supervisor.ts';
import { readSshQuestion } from './ssh-question.ts';

const TRUST = 'Trust This Key';

/**
 * Asks what ssh asks: a secret in a password box, and an unknown host key as a question with its fingerprint. One question
 * at a time, whichever host asks: a second box would replace the first.
 */
export function personAsker(): AskPerson {
  let queue: Promise<unknown> = Promise.resolve();
  return (host, { text }, signal) => {
    const answer = queue.then(() => (signal.aborted ? null : ask(host, text, signal)));
    queue = answer.catch(() => undefined);
    return answer;
  };
}

async function ask(host: string, text: string, signal: AbortSignal): Promise<string | null> {
  const question = readSshQuestion(text);
  if (question.kind === 'secret') return askSecret(host, question.prompt, signal);
  const choice = await window.showWarningMessage(
    `The host key of ${host} (${question.place}) is not known.`,
    {
      modal: true,
      detail: `${question.key}\n\nAsk the person who runs the machine for its fingerprint, and compare. If they differ, somebody may be intercepting the connection.`,
    },
    TRUST,
  );
  return choice === TRUST ? 'yes' : 'no';
}

/** The box closes when the attempt is over. */
async function askSecret(host: string, prompt: string, signal: AbortSignal): Promise<string | null> {
  const over = new CancellationTokenSource();
  const cancel = (): void => over.cancel();
  signal.addEventListener('abort', cancel, { once: true });
  try {
    const options = { title: `Connect to ${host}`, prompt, password: true, ignoreFocusOut: true };
    return (await window.showInputBox(options, over.token)) ?? null;
  } finally {
    signal.removeEventListener('abort', cancel);
    over.dispose();
  }
}
