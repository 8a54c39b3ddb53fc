import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { HostList, suggestHostName } from '../../../hosts/base/host-list.ts';

test('a host keeps the id of its home once it is known', ({ onTestFinished }) => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-hosts-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const list = new HostList(folder);
  list.add('far', 'ssh://far.example.com', new Date(0));
  expect(list.get('far').homeId).toBeUndefined();
  list.setHomeId('far', 'a'.repeat(26));
  list.setHomeId('gone', 'b'.repeat(26));
  expect(list.setHomeId('far', 'a'.repeat(26))).toBe(true);
  expect(list.all()).toEqual([
    {
      name: 'far',
      destination: 'ssh://far.example.com',
      addedAt: '1970-01-01T00:00:00.000Z',
      homeId: 'a'.repeat(26),
    },
  ]);
});

test('a host cannot take the home of another one', ({ onTestFinished }) => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-hosts-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const list = new HostList(folder);
  list.add('far', 'ssh://far.example.com', new Date(0));
  list.add('near', 'ssh://near.example.com', new Date(0));
  expect(list.setHomeId('far', 'a'.repeat(26))).toBe(true);
  expect(list.setHomeId('near', 'a'.repeat(26))).toBe(false);
  expect(list.get('near').homeId).toBeUndefined();
});

test('a host that is given by its destination gets a free name', () => {
  expect(suggestHostName('ssh://me@Far.Example.com:22', [])).toBe('far.example.com');
  expect(suggestHostName('gpu', ['gpu', 'gpu-2'])).toBe('gpu-3');
  expect(suggestHostName('ssh://[::1]:22', [])).toBe('1');
  expect(suggestHostName('local', ['local'])).toBe('host');
});
