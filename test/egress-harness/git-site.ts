import { execFile, spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Site } from './origin.ts';

const run = promisify(execFile);
/** Ignores the settings of this machine and its user. */
const ENVIRONMENT = {
  PATH: process.env['PATH'] ?? '',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_SYSTEM: '/dev/null',
  GIT_AUTHOR_NAME: 'test',
  GIT_AUTHOR_EMAIL: 'test@example.com',
  GIT_COMMITTER_NAME: 'test',
  GIT_COMMITTER_EMAIL: 'test@example.com',
};

/** A repository at `/git/REPOSITORY.git` over git's smart protocol, served by git's own `http-backend`. */
export async function gitSite(
  folder: string,
  repository: string,
  files: Readonly<Record<string, string>>,
): Promise<Site> {
  const work = join(folder, 'work');
  const bare = join(folder, 'served', `${repository}.git`);
  await mkdir(work, { recursive: true });
  const git = (...args: string[]): Promise<unknown> => run('git', args, { cwd: work, env: ENVIRONMENT });
  await git('init', '-q', '-b', 'main');
  for (const [name, content] of Object.entries(files)) await writeFile(join(work, name), content);
  await git('add', '.');
  await git('commit', '-q', '-m', 'first');
  await git('clone', '-q', '--bare', '.', bare);
  return (request, url, response) => {
    if (!url.pathname.startsWith('/git/')) return false;
    backend(join(folder, 'served'), request, url, response);
    return true;
  };
}

/** CGI: the request is in the environment and on stdin, the response on stdout after a few headers. */
function backend(root: string, request: IncomingMessage, url: URL, response: ServerResponse): void {
  const { headers } = request;
  const child = spawn('git', ['http-backend'], {
    env: {
      ...ENVIRONMENT,
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      PATH_INFO: url.pathname.slice('/git'.length),
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: request.method,
      CONTENT_TYPE: headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: headers['content-encoding'] ?? '',
      GIT_PROTOCOL: String(headers['git-protocol'] ?? ''),
      REMOTE_ADDR: '127.0.0.1',
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  child.stdin.on('error', () => undefined);
  request.pipe(child.stdin);
  let head: Buffer | null = Buffer.alloc(0);
  child.stdout.on('data', (chunk: Buffer) => {
    if (head === null) {
      response.write(chunk);
      return;
    }
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end < 0) return;
    const lines = head.toString('latin1', 0, end).split('\r\n');
    const pairs = lines.map((line): [string, string] => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon), line.slice(colon + 1).trim()];
    });
    const status = pairs.find(([name]) => name.toLowerCase() === 'status')?.[1] ?? '200';
    response.writeHead(
      Number.parseInt(status, 10),
      pairs.filter(([name]) => name.toLowerCase() !== 'status').flat(),
    );
    response.write(head.subarray(end + 4));
    head = null;
  });
  child.once('close', () => response.end());
}
