import { describe, expect, test } from 'vitest';
import { hostStatus, hostTitle, onHost } from '../../../extension/connection/host-status.ts';
import { MAX_HOST_SESSIONS, SessionOwners } from '../../../extension/connection/session-owners.ts';
import { readSshQuestion } from '../../../extension/hosts/ssh-question.ts';
import { HoldfastError } from '../../../protocol/errors.ts';

const UNKNOWN_KEY = `The authenticity of host '[127.0.0.1]:2222 ([127.0.0.1]:2222)' can't be established.
ED25519 key fingerprint is SHA256:ZW5vdWdoIGJ5dGVzIGZvciBhIGZpbmdlcnByaW50.
This key is not known by any other names.
Are you sure you want to continue connecting (yes/no/[fingerprint])? `;

describe('a question of ssh', () => {
  test('about an unknown host key is shown with the place and the fingerprint', () => {
    expect(readSshQuestion(UNKNOWN_KEY)).toEqual({
      kind: 'hostKey',
      place: '[127.0.0.1]:2222 ([127.0.0.1]:2222)',
      key: 'ED25519 key fingerprint is SHA256:ZW5vdWdoIGJ5dGVzIGZvciBhIGZpbmdlcnByaW50',
    });
  });

  test.for([
    ['(me@far) Password: ', '(me@far) Password:'],
    ["Enter passphrase for key '/home/me/.ssh/id': ", "Enter passphrase for key '/home/me/.ssh/id':"],
    ['', 'ssh asks for a secret'],
    ['(me@far) \x1b[2J[Reset](command:evil) $(zap)', '(me@far) \\u{1b}[2J[Reset] (command:evil) $ (zap)'],
    [`(me@far) ${UNKNOWN_KEY}`, expect.stringContaining('(me@far) The authenticity of host') as string],
    ['Type yes (yes/no)? ', 'Type yes (yes/no)?'],
  ])('is answered hidden if it is anything else: %j', ([text, prompt]) => {
    expect(readSshQuestion(text ?? '')).toEqual({ kind: 'secret', prompt });
  });
});

describe('a host in the view', () => {
  const at = new Date(2026, 1, 3, 14, 5).getTime();
  const error = new HoldfastError('timeout', 'far cannot be reached', {
    why: 'it does not answer',
    next: 'check the network',
  });

  test('shows the step of connecting', () => {
    expect(hostStatus({ kind: 'connecting' }).text).toBe('connecting…');
    expect(hostStatus({ kind: 'connecting', stage: 'Sending Node: 40 %' }).text).toBe('Sending Node: 40 %');
  });

  test('shows since when it reconnects, and why', () => {
    const status = hostStatus({ kind: 'connecting', lost: { since: at, why: error.sentence } });
    expect(status).toMatchObject({ text: 'reconnecting since 14:05', isConnected: false });
    expect(status.tooltip.join(' ')).toContain('it does not answer');
  });

  test('shows what to do where it is away', () => {
    const status = hostStatus({ kind: 'noSupervisor', error, since: at });
    expect(status.text).toBe('away since 14:05');
    expect(status.tooltip).toEqual(['far cannot be reached.', 'it does not answer.', 'check the network.']);
  });

  test('cannot put an icon or a link into the view', () => {
    const stage = '$(zap) [x](command:y)\u202e';
    expect(hostStatus({ kind: 'connecting', stage }).text).toBe('$ (zap) [x] (command:y)\\u{202e}');
  });

  test('has its own name, and this machine is called so', () => {
    expect([hostTitle('local'), hostTitle('far')]).toEqual(['This Machine', 'far']);
  });

  test('is named in a question, unless there is only this machine', () => {
    expect(onHost('Set Secret', 'local', 1)).toBe('Set Secret');
    expect(onHost('Set Secret', 'local', 2)).toBe('Set Secret on This Machine');
    expect(onHost('Set Secret', 'far', 2)).toBe('Set Secret on far');
  });
});

describe('a session that two hosts report', () => {
  test('belongs to the first', () => {
    const owners = new SessionOwners('local');
    expect(owners.claim('far', 'ses-a')).toBe(true);
    expect(owners.claim('near', 'ses-a')).toBe(false);
    expect(owners.claim('far', 'ses-a')).toBe(true);
    expect(owners.ownerOf('ses-a')).toBe('far');
  });

  test('belongs to this machine if it is one of them', () => {
    const owners = new SessionOwners('local');
    owners.claim('far', 'ses-a');
    expect(owners.claim('local', 'ses-a')).toBe(true);
    expect(owners.claim('far', 'ses-a')).toBe(false);
    expect(owners.ownerOf('ses-a')).toBe('local');
  });

  test('is not forgotten because a host reports more than it may', () => {
    const owners = new SessionOwners('local');
    owners.claim('local', 'ses-a');
    owners.claim('near', 'ses-b');
    for (let number = 0; number < MAX_HOST_SESSIONS; number += 1) {
      expect(owners.claim('far', `ses-far-${number}`)).toBe(true);
    }
    expect(owners.claim('far', 'ses-more')).toBe(false);
    expect(owners.claim('far', 'ses-far-0')).toBe(true);
    expect(owners.claim('near', 'ses-c')).toBe(true);
    expect(owners.claim('local', 'ses-c')).toBe(true);
    expect([owners.ownerOf('ses-a'), owners.ownerOf('ses-b')]).toEqual(['local', 'near']);
  });
});
