import { window } from 'vscode';
import type { AskPerson } from '../connection/remote-supervisor.ts';
import { readSshQuestion } from './ssh-question.ts';

const TRUST = 'Trust This Key';

/** Asks what ssh asks: a secret in a password box, and an unknown host key as a question with its fingerprint. */
export const askPerson: AskPerson = async (host, { text }) => {
  const question = readSshQuestion(text);
  if (question.kind === 'secret') {
    const answer = await window.showInputBox({
      title: `Connect to ${host}`,
      prompt: question.prompt,
      password: true,
      ignoreFocusOut: true,
    });
    return answer ?? null;
  }
  const choice = await window.showWarningMessage(
    `The host key of ${host} (${question.place}) is not known.`,
    {
      modal: true,
      detail: `${question.key}\n\nCompare the fingerprint with whoever runs the machine. If it differs, somebody may be in between.`,
    },
    TRUST,
  );
  return choice === TRUST ? 'yes' : 'no';
};
