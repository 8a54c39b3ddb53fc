import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { EndpointSources } from '../../../supervisor/engine/docker/endpoint.ts';
import { resolveEndpoint } from '../../../supervisor/engine/docker/endpoint.ts';

function sources(
  env: Record<string, string>,
  files: Record<string, string> = {},
  setting?: string,
): EndpointSources {
  return {
    env,
    userHome: '/home/me',
    setting,
    exists: (path) => path in files,
    read: (path) => files[path] ?? null,
  };
}

function context(name: string, host: string, folder = '/home/me/.docker'): Record<string, string> {
  const hash = createHash('sha256').update(name).digest('hex');
  const meta = { Name: name, Metadata: {}, Endpoints: { docker: { Host: host, SkipTLSVerify: false } } };
  return { [`${folder}/contexts/meta/${hash}/meta.json`]: JSON.stringify(meta) };
}

describe('which engine is used', () => {
  test('a setting takes precedence over everything, as a path or an address', () => {
    const env = { DOCKER_HOST: 'unix:///b.sock' };
    expect(resolveEndpoint(sources(env, {}, '/a.sock'))).toEqual({
      socketPath: '/a.sock',
      source: 'setting',
    });
    expect(resolveEndpoint(sources(env, {}, 'unix:///c.sock')).socketPath).toBe('/c.sock');
  });

  test('DOCKER_HOST takes precedence over contexts', () => {
    const env = { DOCKER_HOST: 'unix:///run/my docker.sock', DOCKER_CONTEXT: 'other' };
    expect(resolveEndpoint(sources(env))).toEqual({
      socketPath: '/run/my docker.sock',
      source: 'DOCKER_HOST',
    });
  });

  test('DOCKER_CONTEXT takes precedence over the current context', () => {
    const files = {
      '/home/me/.docker/config.json': '{"currentContext":"two","auths":{}}',
      ...context('one', 'unix:///one.sock'),
      ...context('two', 'unix:///two.sock'),
    };
    expect(resolveEndpoint(sources({ DOCKER_CONTEXT: 'one' }, files)).socketPath).toBe('/one.sock');
    expect(resolveEndpoint(sources({}, files))).toEqual({ socketPath: '/two.sock', source: 'context' });
    expect(resolveEndpoint(sources({ DOCKER_CONTEXT: 'default' }, files)).source).toBe('default');
  });

  test('DOCKER_CONFIG sets the folder of contexts', () => {
    const files = {
      '/etc/mine/config.json': '{"currentContext":"x"}',
      ...context('x', 'unix:///x.sock', '/etc/mine'),
    };
    expect(resolveEndpoint(sources({ DOCKER_CONFIG: '/etc/mine' }, files)).socketPath).toBe('/x.sock');
  });

  test('the user’s rootless socket is used only if the system has none', () => {
    const env = { XDG_RUNTIME_DIR: '/run/user/7' };
    const own = { '/run/user/7/docker.sock': '' };
    expect(resolveEndpoint(sources(env, own)).socketPath).toBe('/run/user/7/docker.sock');
    const both = { ...own, '/var/run/docker.sock': '' };
    expect(resolveEndpoint(sources(env, both)).socketPath).toBe('/var/run/docker.sock');
    expect(resolveEndpoint(sources(env)).socketPath).toBe('/var/run/docker.sock');
  });

  test.each(['tcp://10.0.0.1:2375', 'ssh://me@host', 'npipe:////./pipe/docker_engine', 'unix://relative'])(
    '%s is refused with a next step',
    (address) => {
      const act = (): unknown => resolveEndpoint(sources({ DOCKER_HOST: address }));
      expect(act).toThrow(
        expect.objectContaining({
          code: 'not_supported',
          next: expect.stringContaining('unix://') as unknown,
        }),
      );
    },
  );

  test('a missing context and invalid JSON give clear errors', () => {
    const gone = { '/home/me/.docker/config.json': '{"currentContext":"gone"}' };
    expect(() => resolveEndpoint(sources({}, gone))).toThrow(
      expect.objectContaining({
        code: 'engine_unavailable',
        message: 'Docker context "gone" does not exist',
      }),
    );
    const broken = { '/home/me/.docker/config.json': '{"currentContext":' };
    expect(() => resolveEndpoint(sources({}, broken))).toThrow(/config\.json/);
    const odd = { '/home/me/.docker/config.json': '{"currentContext":7}' };
    expect(() => resolveEndpoint(sources({}, odd))).toThrow(
      expect.objectContaining({ code: 'engine_unavailable' }),
    );
  });
});
