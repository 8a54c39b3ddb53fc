import { dialAt } from '../../protocol/client/socket.ts';
import { connectorFiles } from './connector-files.ts';
import { MessageReader, ReplySchema, writeMessage } from './messages.ts';

/**
 * What ssh runs to ask a question: prints the answer that a client of the connector gave. Returns the exit code: 1 if
 * nobody answered.
 */
export async function runAskpass(
  home: string,
  host: string,
  build: string,
  text: string,
  environment: NodeJS.ProcessEnv,
): Promise<number> {
  const socket = await dialAt(connectorFiles(home, host, build).socket);
  const isNotice = environment['SSH_ASKPASS_PROMPT'] === 'none';
  writeMessage(socket, { want: 'ask', text: text.slice(0, 8000), isNotice });
  const reply = await new MessageReader(socket).next(ReplySchema);
  socket.destroy();
  if (reply === null || !('text' in reply) || reply.text === null) return 1;
  await new Promise<void>((resolve) => process.stdout.write(`${reply.text ?? ''}\n`, () => resolve()));
  return 0;
}
