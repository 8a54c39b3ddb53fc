import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import type { EngineStatus } from '../../../protocol/entities.ts';
import { HoldfastError } from '../../../protocol/errors.ts';

/** The engine's socket, and the setting that named it. */
export interface Endpoint {
  readonly socketPath: string;
  readonly source: EngineStatus['source'];
}

/** Inputs of the decision; injected, so that tests need no machine. */
export interface EndpointSources {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly userHome: string;
  /** An address configured for this installation; takes precedence. */
  readonly setting?: string | undefined;
  exists(path: string): boolean;
  /** Null if the file does not exist. */
  read(path: string): string | null;
}

const DEFAULT_SOCKET = '/var/run/docker.sock';
const ConfigSchema = z.object({ currentContext: z.string().optional() });
const ContextSchema = z.object({
  Name: z.string(),
  Endpoints: z.object({ docker: z.object({ Host: z.string() }) }),
});

export function endpointSources(env: NodeJS.ProcessEnv, setting?: string): EndpointSources {
  return {
    env,
    userHome: homedir(),
    setting,
    exists: existsSync,
    read: (path) => {
      try {
        return readFileSync(path, 'utf8');
      } catch (error) {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
        throw new HoldfastError('engine_unavailable', `Cannot read ${path}`, {
          why: error instanceof Error ? error.message : String(error),
          next: 'repair the file, or set DOCKER_HOST=unix:///path/to/docker.sock',
          cause: error,
        });
      }
    },
  };
}

/**
 * The engine that the `docker` command would use: DOCKER_HOST, else DOCKER_CONTEXT or the current context, else the
 * system's socket, else the user's own. Errors: `not_supported` (not a unix socket), `engine_unavailable` (a context
 * that does not exist or is unreadable).
 */
export function resolveEndpoint(sources: EndpointSources): Endpoint {
  const { env, setting } = sources;
  if (setting !== undefined && setting !== '') {
    return {
      socketPath: setting.startsWith('/') ? setting : unixPath(setting, 'the setting'),
      source: 'setting',
    };
  }
  const host = env['DOCKER_HOST'];
  if (host !== undefined && host !== '') {
    return { socketPath: unixPath(host, 'DOCKER_HOST'), source: 'DOCKER_HOST' };
  }
  const folder = env['DOCKER_CONFIG'] ?? join(sources.userHome, '.docker');
  const context = env['DOCKER_CONTEXT'] ?? currentContext(sources, folder) ?? '';
  if (context !== '' && context !== 'default') return contextEndpoint(sources, folder, context);
  if (!sources.exists(DEFAULT_SOCKET)) {
    const own = [
      join(env['XDG_RUNTIME_DIR'] ?? '/nonexistent', 'docker.sock'),
      join(sources.userHome, '.docker/run/docker.sock'),
    ].find((path) => sources.exists(path));
    if (own !== undefined) return { socketPath: own, source: 'default' };
  }
  return { socketPath: DEFAULT_SOCKET, source: 'default' };
}

function currentContext(sources: EndpointSources, folder: string): string | undefined {
  const path = join(folder, 'config.json');
  const text = sources.read(path);
  return text === null ? undefined : parseFile(ConfigSchema, path, text).currentContext;
}

function contextEndpoint(sources: EndpointSources, folder: string, name: string): Endpoint {
  const path = join(folder, 'contexts/meta', createHash('sha256').update(name).digest('hex'), 'meta.json');
  const text = sources.read(path);
  if (text === null) {
    throw new HoldfastError('engine_unavailable', `Docker context "${name}" does not exist`, {
      why: `${path} does not exist`,
      next: 'pick another with `docker context use NAME`, or set DOCKER_HOST=unix:///path/to/docker.sock',
    });
  }
  const host = parseFile(ContextSchema, path, text).Endpoints.docker.Host;
  return { socketPath: unixPath(host, `Docker context "${name}"`), source: 'context' };
}

function unixPath(address: string, from: string): string {
  const path = address.startsWith('unix://') ? address.slice('unix://'.length) : '';
  if (path.startsWith('/')) return path;
  throw new HoldfastError('not_supported', `Cannot use the engine at ${address}`, {
    why: `${from} names it, and Holdfast supports unix sockets only`,
    next:
      'run Holdfast on the machine where that engine runs, ' +
      'or choose a local one: DOCKER_HOST=unix:///var/run/docker.sock, or `docker context use default`',
  });
}

function parseFile<T>(schema: z.ZodType<T>, path: string, text: string): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (error) {
    throw new HoldfastError('engine_unavailable', `Cannot understand ${path}`, {
      why: error instanceof z.ZodError ? z.prettifyError(error) : String(error),
      next: 'repair the file, or set DOCKER_HOST=unix:///path/to/docker.sock',
      cause: error,
    });
  }
}
