import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { endpoint } from '../../../scripts/setup/endpoint.mjs';

describe('which engine is used', () => {
  let settings: string;
  beforeEach(() => {
    settings = mkdtempSync(join(tmpdir(), 'holdfast-docker-config-'));
  });
  afterEach(() => {
    rmSync(settings, { recursive: true });
  });

  function addContext(name: string, host: string): void {
    const directory = join(settings, 'contexts/meta', createHash('sha256').update(name).digest('hex'));
    mkdirSync(directory, { recursive: true });
    writeFileSync(
      join(directory, 'meta.json'),
      JSON.stringify({ Name: name, Endpoints: { docker: { Host: host } } }),
    );
  }

  test('the default socket where nothing names another', () => {
    expect(endpoint({ DOCKER_CONFIG: settings })).toMatchObject({
      socket: '/var/run/docker.sock',
      isDefault: true,
    });
  });

  test('DOCKER_HOST comes before the context', () => {
    addContext('mine', 'unix:///context.sock');
    const env = { DOCKER_CONFIG: settings, DOCKER_CONTEXT: 'mine', DOCKER_HOST: 'unix:///host.sock' };
    expect(endpoint(env)).toEqual({ socket: '/host.sock', from: 'DOCKER_HOST', isDefault: false });
  });

  test('the current context of the settings', () => {
    addContext('mine', 'unix:///context.sock');
    writeFileSync(join(settings, 'config.json'), JSON.stringify({ currentContext: 'mine' }));
    expect(endpoint({ DOCKER_CONFIG: settings })).toMatchObject({
      socket: '/context.sock',
      isDefault: false,
    });
  });

  test('a context that does not exist is named, with what to do', () => {
    expect(() => endpoint({ DOCKER_CONFIG: settings, DOCKER_CONTEXT: 'gone' })).toThrow(/context "gone"/);
  });

  test.each(['tcp://127.0.0.1:2375', 'ssh://somebody@somewhere', 'npipe:////./pipe/docker_engine'])(
    '%s is refused, not ignored',
    (host) => {
      expect(() => endpoint({ DOCKER_CONFIG: settings, DOCKER_HOST: host })).toThrow(
        /only engines behind a unix socket/,
      );
    },
  );
});
