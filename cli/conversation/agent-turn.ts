import type { Turn } from '../../protocol/entities.ts';
import type { Context } from '../context.ts';
import { waitForEnd } from '../follow-turn.ts';
import { printResult } from '../turn-result.ts';
import { AgentPrinter } from './agent-printer.ts';
import { followConversation } from './follow-conversation.ts';
import { PermissionQuestions } from './permission-questions.ts';

/**
 * Shows a turn of an agent that stays, from its beginning until it has ended. `onEnded`: further fields of its JSON. Returns the exit
 * code.
 */
export async function showAgentTurn(
  context: Context,
  { turnId, sessionId }: Pick<Turn, 'turnId' | 'sessionId'>,
  signal?: AbortSignal,
  onEnded: (turn: Turn) => Promise<Readonly<Record<string, unknown>>> = async () => ({}),
): Promise<number> {
  const questions = new PermissionQuestions(context, context.isInteractive && !context.json);
  const printer = new AgentPrinter(context, questions);
  context.progress.begin('Waiting for the agent');
  try {
    const [turn] = await Promise.all([
      waitForEnd(context, turnId, signal),
      followConversation(context, sessionId, turnId, printer, signal),
    ]);
    context.progress.end();
    return await printResult(context, turn, 'conversation', printer, await onEnded(turn));
  } finally {
    questions.close();
    context.progress.end();
  }
}
