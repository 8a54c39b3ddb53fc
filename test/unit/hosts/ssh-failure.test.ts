import { expect, test } from 'vitest';
import { sshFailure } from '../../../hosts/ssh/ssh-failure.ts';

const HOST = { name: 'far', destination: 'ssh://far.example.com', addedAt: '2026-11-23T00:00:00Z' };

// Sentences as OpenSSH 9.2 prints them.
test.for([
  [
    'Connection closed by UNKNOWN port 65535\r\n',
    'connection_closed',
    'the connection ended during the login',
  ],
  [
    'kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 127.0.0.1 port 22\r\n',
    'connection_closed',
    'the connection ended during the login',
  ],
  [
    'ssh: connect to host 127.0.0.1 port 1: Connection refused\r\n',
    'connection_closed',
    'nothing listens on its ssh port',
  ],
  ['ssh: connect to host far port 22: Connection timed out\r\n', 'timeout', 'it does not answer'],
  [
    'Received disconnect from 127.0.0.1 port 22:2: Too many authentication failures\r\n',
    'permission_denied',
    'ssh offered too many keys',
  ],
  [
    'me@far: Permission denied (publickey).\r\n',
    'permission_denied',
    'it accepts none of your keys, passwords and codes',
  ],
])('%j is told in our words', ([said = '', code, why]) => {
  expect(sshFailure(HOST, said, 'ended with code 255')).toMatchObject({
    code,
    why,
    message: 'far (ssh://far.example.com) cannot be reached',
  });
});

test('what is not known is quoted', () => {
  expect(sshFailure(HOST, 'debug\nsomething else\n', 'ended with code 255').why).toBe(
    'ssh says: something else',
  );
  expect(sshFailure(HOST, '', 'ended with code 255').why).toBe('ssh ended with code 255');
});
