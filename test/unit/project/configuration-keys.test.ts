import { describe, expect, test } from 'vitest';
import { withoutKeys } from '../../../project/configuration/without-keys.ts';
import { processorMs } from '../../setup/processor-time.ts';

const KEY = 'a1B2c3D4e5F6a7B8c9D0e1F2';
const ISSUED = 'ghp_0123456789abcdefghijABCDEFGHIJ012345';

async function filter(path: string, text: string): Promise<{ text: string | null; left: string[] }> {
  const { content, leftOut } = await withoutKeys(path, Buffer.from(text));
  return { text: content?.toString('utf8') ?? null, left: leftOut.map((one) => one.path) };
}
const server = (entry: object): string => JSON.stringify({ theme: 'dark', mcpServers: { search: entry } });

describe('MCP entries', () => {
  test.each([
    ['env.TOKEN', { command: 'npx', env: { TOKEN: KEY, DEBUG: '1' } }],
    ['env.SETTING', { command: 'npx', env: { SETTING: KEY } }],
    ['environment.API_KEY', { command: ['npx'], environment: { API_KEY: 'longer-than-12' } }],
    ['headers.Authorization', { url: 'https://example.com/mcp', headers: { Authorization: 'Bearer x' } }],
    ['headers.X-Api-Key', { url: 'https://example.com/mcp', headers: { 'X-Api-Key': KEY } }],
    ['url', { url: `https://example.com/mcp?key=${KEY}` }],
    ['url', { url: 'https://user:password@example.com/mcp' }],
    ['url', { url: `https://example.com/s/${KEY}/mcp` }],
    ['httpUrl', { httpUrl: `https://${KEY}@example.com/` }],
  ])('lose %s', async (where, entry) => {
    const found = await filter('.gemini/settings.json', server(entry));
    expect(found.left).toEqual([`.gemini/settings.json: mcpServers.search.${where}`]);
    expect(found.text).not.toContain(KEY);
    expect(found.text).not.toContain('password');
    expect(JSON.parse(found.text ?? '')).toMatchObject({ theme: 'dark', mcpServers: { search: {} } });
  });

  test.each([
    [{ command: 'npx', args: ['server', '--api-key', KEY] }],
    [{ command: 'npx', args: ['server', `--token=${KEY}`] }],
    [{ command: 'mcp-remote', args: ['https://example.com', '--header', `Authorization: Bearer ${KEY}`] }],
    [{ command: ['sh', '-c', `x ${ISSUED}`] }],
    [{ command: 'x', args: [`https://u:p@example.com/`] }],
  ])('are left out as a whole where the command has the key: %j', async (entry) => {
    const found = await filter('.mcp.json', server(entry));
    expect(found.left).toEqual(['.mcp.json: mcpServers.search']);
    expect(JSON.parse(found.text ?? '')).toEqual({ theme: 'dark', mcpServers: {} });
  });

  test.each([
    [
      {
        command: 'npx',
        args: ['-y', '@modelcontextprotocol/server-filesystem', '/workspace'],
        env: { DEBUG: 'mcp:*' },
      },
    ],
    [{ url: 'https://mcp.example.com/v1/sse?region=eu-west-1' }],
    [{ command: 'npx', env: { TOKEN: '${GITHUB_TOKEN}', OTHER: '$NAME', THIRD: '{env:API_KEY}' } }],
    [{ url: 'https://example.com', headers: { Authorization: 'Bearer ${TOKEN}' } }],
    [{ command: 'uvx', args: ['server@2026.10.15', '--port', '8080'] }],
    [{ url: 'https://example.com', bearer_token_env_var: 'GITHUB_PERSONAL_TOKEN' }],
  ])('without keys stay, without comments: %j', async (entry) => {
    const found = await filter('settings.json', `// a comment\n${server(entry)}\n`);
    expect(found.left).toEqual([]);
    expect(JSON.parse(found.text ?? '')).toEqual({ theme: 'dark', mcpServers: { search: entry } });
  });

  test.each([
    ['env.DATABASE_URI', { env: { DATABASE_URI: 'postgresql://admin:hunter2secret@db/prod' } }],
    ['env.DATABASE_URI', { env: { DATABASE_URI: 'postgresql://admin:hunter2/secret@db/prod' } }],
    ['env.PGPASSWORD', { env: { PGPASSWORD: 'hunter2' } }],
    ['http_headers.X-Api-Key', { http_headers: { 'X-Api-Key': 'hunter2' } }],
    ['extraHeaders.0', { extraHeaders: ['Authorization: hunter2'] }],
    ['headers.0', { headers: [{ name: 'Authorization', value: 'hunter2' }] }],
    ['note', { note: 'it is at https://admin:hunter2@example.com' }],
  ])('lose passwords that look like words: %s', async (where, entry) => {
    const found = await filter('.claude.json', server({ command: 'x', ...entry }));
    expect(found.left).toEqual([`.claude.json: mcpServers.search.${where}`]);
    expect(found.text).not.toContain('hunter2');
  });
});

describe('other settings', () => {
  test('lose keys wherever they are, with comments and trailing commas in the file', async () => {
    const found = await filter(
      'settings.json',
      `{ /* mine */ "env": { "ANTHROPIC_API_KEY": "${KEY}", "A": "b", }, "apiKey": "${KEY}", "list": ["x", "${ISSUED}"], }`,
    );
    expect(found.left).toEqual([
      'settings.json: env.ANTHROPIC_API_KEY',
      'settings.json: apiKey',
      'settings.json: list.1',
    ]);
    expect(JSON.parse(found.text ?? '')).toEqual({ env: { A: 'b' }, list: ['x'] });
  });

  test.each<[string, string, object]>([
    ['.claude/settings.json', 'env.HTTPS_PROXY', { env: { HTTPS_PROXY: 'http://alice:hunter2@proxy:3128' } }],
    [
      '.claude/settings.json',
      'env.ANTHROPIC_CUSTOM_HEADERS',
      { env: { ANTHROPIC_CUSTOM_HEADERS: 'Authorization: Bearer hunter2' } },
    ],
    [
      '.claude/settings.json',
      'env.ANTHROPIC_CUSTOM_HEADERS',
      { env: { ANTHROPIC_CUSTOM_HEADERS: 'X-Team: a\nX-Api-Key: hunter2' } },
    ],
    [
      '.config/opencode/opencode.json',
      'provider.x.options.headers.Authorization',
      { provider: { x: { options: { headers: { Authorization: 'hunter2' } } } } },
    ],
    ['a.json', 'allow.0', { allow: ['Bash(curl -H "Authorization: Bearer hunter2" example.com)'] }],
    ['a.json', 'allow.0', { allow: ['Bash(git push https://hunter2@example.com/x.git)'] }],
    ['a.json', 'remotes.…', { remotes: { 'https://a:hunter2@example.com': true } }],
  ])('of %s lose passwords that look like words: %s', async (path, where, settings) => {
    const found = await filter(path, JSON.stringify(settings));
    expect(found.left).toEqual([`${path}: ${where}`]);
    expect(found.text).not.toContain('hunter2');
  });

  test.each([
    {
      $schema: 'https://json.schemastore.org/claude-code-settings.json',
      model: 'claude-sonnet-4-5-20250929',
    },
    {
      env: {
        ANTHROPIC_MODEL: 'us.anthropic.claude-sonnet-4-5-20250929-v1:0',
        NODE_OPTIONS: '--max-old-space-size=4096',
      },
    },
    { env: { MAX_THINKING_TOKENS: '32000', CLAUDE_CODE_MAX_OUTPUT_TOKENS: '64000', DISABLE_TELEMETRY: '1' } },
    {
      env: {
        HTTPS_PROXY: 'http://proxy.example.com:3128',
        NO_PROXY: 'localhost,127.0.0.1',
        PWD: '/workspace',
      },
    },
    {
      env: {
        DATABASE_URI: 'postgresql://${USER}:${PASSWORD}@db/prod',
        ANTHROPIC_BASE_URL: 'http://localhost:4000',
      },
    },
    { headers: { 'X-Team': 'platform', Accept: 'application/json', Authorization: 'Bearer {env:TOKEN}' } },
    { env_http_headers: { Authorization: 'MY_TOKEN_VARIABLE' }, env_key: 'OPENAI_API_KEY' },
    {
      permissions: {
        allow: ['Bash(npm run test:*)', 'WebFetch(domain:docs.example.com)', 'mcp__search__find'],
      },
    },
    {
      repository: 'git+ssh://git@github.com/owner/name.git',
      other: 'ssh://deploy@host:22/x',
      c: 'git@host:x',
    },
    {
      page: 'https://example.com:8080/@scope/name',
      mail: 'me@example.com',
      notes: 'use basic authentication here',
    },
    { instructions: 'Send the Authorization header as `Authorization: Bearer <token>`, or a bearer token.' },
  ])('that are ordinary stay: %j', async (settings) => {
    const found = await filter('settings.json', JSON.stringify(settings));
    expect(found.left).toEqual([]);
    expect(JSON.parse(found.text ?? '')).toEqual(settings);
  });

  test.each([
    ['a.jsonc', `{ /* ${KEY} */ "a": 1.5, // hunter2\n "b": true }`],
    ['.codex/config.toml', `# token = "${KEY}"\na = 1.5 # hunter2\nb = true\n`],
  ])('of %s lose every comment, with nothing else left out', async (path, text) => {
    const found = await filter(path, text);
    expect(found.left).toEqual([]);
    expect(found.text).toMatch(/a"?( =|:) 1\.5/);
    expect(found.text).not.toMatch(/hunter2|a1B2/);
  });

  test('of TOML keep the kinds of their numbers', async () => {
    const found = await filter('a.toml', 'whole = 5\nfraction = 1.0\nlarge = 9007199254740993\n');
    expect(found.text).toBe('whole = 5\nfraction = 1.0\nlarge = 9007199254740993\n');
  });

  test('of Codex lose the headers of a provider and variables of its commands', async () => {
    const found = await filter(
      '.codex/config.toml',
      '[model_providers.x.http_headers]\nAuthorization = "hunter2"\n[shell_environment_policy.set]\nDB_PASSWORD = "hunter2"\nCI = "1"\n',
    );
    expect(found.left).toEqual([
      '.codex/config.toml: model_providers.x.http_headers.Authorization',
      '.codex/config.toml: shell_environment_policy.set.DB_PASSWORD',
    ]);
    expect(found.text).toContain('CI = "1"');
    expect(found.text).not.toContain('hunter2');
  });

  test('of many addresses are searched in bounded time', async () => {
    const text = JSON.stringify({ a: 'x://a:a'.repeat(100_000), b: 'authorization: '.repeat(40_000) });
    expect(await processorMs(() => filter('a.json', text))).toBeLessThan(2000);
  });

  test('of TOML lose them too', async () => {
    const found = await filter(
      '.codex/config.toml',
      `model = "o3"\n[mcp_servers.search]\ncommand = "npx"\n[mcp_servers.search.env]\nTOKEN = "${KEY}"\nA = "b"\n[model_providers.x]\nexperimental_bearer_token = "${KEY}"\n`,
    );
    expect(found.left).toEqual([
      '.codex/config.toml: mcp_servers.search.env.TOKEN',
      '.codex/config.toml: model_providers.x.experimental_bearer_token',
    ]);
    expect(found.text).toContain('model = "o3"');
    expect(found.text).not.toContain(KEY);
  });

  test('that cannot be read are left out', async () => {
    for (const [path, text] of [
      ['a.json', '{ "a": '],
      ['a.toml', 'a = = b'],
      ['b.json', '\xff\xfe'],
      ['deep.json', '['.repeat(50_000)],
    ] as const) {
      const { content, leftOut } = await withoutKeys(path, Buffer.from(text, 'latin1'));
      expect(content).toBeNull();
      expect(leftOut).toHaveLength(1);
    }
  });

  test('nested too deeply are left out there', async () => {
    const found = await filter('a.json', `${'{"a":'.repeat(100)}"${KEY}"${'}'.repeat(100)}`);
    expect(found.left).toHaveLength(1);
    expect(found.text).not.toContain(KEY);
  });

  test('with a prototype as a name change nothing of ours', async () => {
    const found = await filter(
      'a.json',
      `{"__proto__": {"polluted": "${ISSUED}"}, "constructor": {"token": "${KEY}"}}`,
    );
    expect(found.text).not.toContain(KEY);
    expect(found.text ?? '').not.toContain(ISSUED);
    expect(({} as { polluted?: string }).polluted).toBeUndefined();
  });

  test('of `.claude.json` are its MCP servers alone', async () => {
    const found = await filter(
      '.claude.json',
      JSON.stringify({
        oauthAccount: { email: 'me@example.com' },
        projects: { '/home/me': {} },
        mcpServers: { a: { command: 'x' } },
      }),
    );
    expect(JSON.parse(found.text ?? '')).toEqual({ mcpServers: { a: { command: 'x' } } });
  });
});

describe('files of other formats', () => {
  test.each([
    ['.env', `A=b\nexport TOKEN=${KEY}\n`],
    ['.npmrc', `//registry.example.com/:_authToken=npm_${KEY}${KEY}\n`],
    ['notes.md', `use ${ISSUED} for it`],
    ['key', '-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza\n'],
    ['conf/tool.yaml', `api_key: "${KEY}"\n`],
    ['conf/tool.yaml', `# api_key: "${KEY}"\n`],
    ['.env', 'DATABASE_URI=postgresql://admin:hunter2secret@db/prod\n'],
    ['.npmrc', 'proxy=http://alice:pw@proxy:3128\n'],
  ])('%s with a key is left out', async (path, text) => {
    expect(await filter(path, text)).toEqual({ text: null, left: [path] });
  });

  test.each([
    ['CLAUDE.md', 'Set `API_KEY=your-key-here` first. Token: see the vault.\n'],
    ['skills/x/SKILL.md', '# Tokens\n\nA token is a word of the model.\n'],
    ['.env', 'DEBUG=1\nAPI_KEY=${FROM_ELSEWHERE}\n'],
  ])('%s without one stays', async (path, text) => {
    expect(await filter(path, text)).toEqual({ text, left: [] });
  });
});
