import * as sdk from '@agentclientprotocol/sdk';
import { expect, test } from 'vitest';
import * as requests from '../../../supervisor/agents/acp/requests.ts';
import { FROM_AGENT, TO_AGENT, VERSION } from '../../../supervisor/agents/acp/wire.ts';

test("the names and the version are those of the protocol's authors", () => {
  expect(sdk.AGENT_METHODS).toMatchObject(TO_AGENT);
  expect(sdk.CLIENT_METHODS).toMatchObject(FROM_AGENT);
  expect(sdk.PROTOCOL_VERSION).toBe(VERSION);
});

test('a message is one line, whatever its text', () => {
  const text = 'a\nb\u2028c\r\n"d"';
  const line = requests.requestLine(7, requests.prompt('s', [{ type: 'text', text }]));
  expect(line.indexOf('\n')).toBe(line.length - 1);
  expect(JSON.parse(line.toString())).toMatchObject({ id: 7, params: { prompt: [{ text }] } });
});

test('neither files nor terminals are offered', () => {
  const { params } = requests.initialize('1.0');
  expect(params).toMatchObject({
    protocolVersion: 1,
    clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
  });
});
