import { describe, expect, test } from 'vitest';
import { withoutKeys } from '../../../project/configuration/without-keys.ts';

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
  ])('without keys stay byte by byte: %j', async (entry) => {
    const text = `// a comment\n${server(entry)}\n`;
    expect(await filter('settings.json', text)).toEqual({ text, left: [] });
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
