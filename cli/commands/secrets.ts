import { HoldfastError } from '../../protocol/errors.ts';
import { CREDENTIAL_PRESETS } from '../../protocol/credential-presets.ts';
import { PRESETS } from '../../protocol/presets/index.ts';
import { isPresetName, PRESET_NAMES } from '../../protocol/presets/names.ts';
import { SecretNameSchema } from '../../protocol/secret-name.ts';
import { SECRET_LIMITS, type Secret } from '../../protocol/secrets.ts';
import { ProfileNameSchema } from '../../protocol/profile.ts';
import { DurationSchema } from '../../protocol/units.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { promptHidden } from '../terminal/questions.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';

interface SetOptions {
  profile?: string;
  expires?: string;
}

export function registerSecrets(registry: Registry): void {
  const group = registry.group('secret', 'keep keys and tokens that sandboxes never hold');

  const set = registry
    .command(group, {
      usage: 'set <name>',
      description:
        'set a secret; its value is read from standard input or asked for, and is never an argument',
      examples: [
        'holdfast secret set ANTHROPIC_API_KEY',
        'pass show token | holdfast secret set GIT_TOKEN --profile coder --expires 30d',
      ],
    })
    .option('--profile <profile>', 'for sessions of this profile only (default: for all)')
    .option('--expires <time>', 'delete the value after this time, such as 12h or 30d');
  registry.setAction(set, async (context, { profile, expires }: SetOptions, name: string) => {
    const params = { ...scope(name, profile), ...expiry(expires, context.io.now()) };
    const bytes = await readValue(context, name);
    try {
      const { secret } = await context.call('secret/set', params, { bytes });
      if (context.json) await context.printJson(secret);
      else
        await context.print(
          `${name} is set${secret.profile === null ? '' : ` for ${secret.profile}`}, version ${secret.version}`,
        );
    } finally {
      bytes.fill(0);
    }
    return undefined;
  });

  const list = registry.command(group, {
    usage: 'list',
    description: 'list names, scopes, versions and expiry of the secrets; never values',
  });
  registry.setAction(list, async (context) => {
    const { secrets } = await context.call('secret/list', {});
    if (context.json) await context.printJson({ secrets });
    else await printSecrets(context, secrets);
    return undefined;
  });

  const rm = registry
    .command(group, {
      usage: 'rm <name>',
      description: 'remove a secret; requests that are running are not affected',
    })
    .option('--profile <profile>', 'the one for sessions of this profile (default: the one for all)');
  registry.setAction(rm, async (context, { profile }: { profile?: string }, name: string) => {
    const { removed } = await context.call('secret/remove', scope(name, profile));
    if (!removed) {
      throw new HoldfastError('not_found', `There is no secret ${name}`, {
        why:
          profile === undefined
            ? 'there is none of this name for all profiles'
            : `there is none for the profile ${profile}`,
        next: 'see `holdfast secret list`',
      });
    }
    if (context.json) await context.printJson({ removed });
    else await context.print(`${name} is removed`);
    return undefined;
  });

  const login = registry.command(group, {
    usage: 'login <preset>',
    description: 'say why an agent’s account cannot be used here, and which key to set instead',
    examples: ['holdfast secret login claude'],
  });
  registry.setAction(login, (_context, _options, preset: string) => Promise.reject(loginError(preset)));
}

/** No provider of a preset lets another program sign in for it: each says why, and what to do. */
function loginError(name: string): Error {
  // A credential is called by its service: `anthropic` is what `claude` signs in to.
  const preset = isPresetName(name)
    ? name
    : PRESET_NAMES.find((one) => PRESETS[one].credential.name === name);
  if (preset === undefined)
    return new UsageError(`${name} is no preset; choose one of ${PRESET_NAMES.join(', ')}`);
  const { title, login, credential } = PRESETS[preset];
  const { secret } = CREDENTIAL_PRESETS[credential.name];
  return new HoldfastError('not_supported', `Holdfast cannot sign in to ${title}`, {
    why: login.refused,
    next: `get a key at ${login.from} and set it with \`holdfast secret set ${secret}\``,
    details: { preset, secret, from: login.from },
  });
}

function scope(name: string, profile: string | undefined): { name: string; profile?: string } {
  const checked = SecretNameSchema.safeParse(name);
  if (!checked.success)
    // Not the name itself: somebody may have typed the value in its place.
    throw new UsageError('the name of a secret has letters, digits and underscores, 1 to 64');
  if (profile === undefined) return { name };
  if (!ProfileNameSchema.safeParse(profile).success) throw new UsageError(`${profile} is not a profile name`);
  return { name, profile };
}

function expiry(text: string | undefined, now: number): { expiresAt?: string } {
  if (text === undefined) return {};
  const parsed = DurationSchema.safeParse(text);
  if (!parsed.success || parsed.data < 1)
    throw new UsageError('--expires: expected a duration such as 12h or 30d');
  return { expiresAt: new Date(now + parsed.data).toISOString() };
}

/** The value, without the line end that commands and editors add. */
async function readValue(context: Context, name: string): Promise<Buffer> {
  if (context.isInteractive)
    return Buffer.from(await promptHidden(context, `Value of ${name} (not shown): `));
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of context.io.stdin as AsyncIterable<string | Buffer>) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    chunks.push(bytes);
    length += bytes.length;
    if (length > 2 * SECRET_LIMITS.maxBytes) break;
  }
  const value = Buffer.concat(chunks);
  const end = value.at(-1) === 0x0a ? (value.at(-2) === 0x0d ? -2 : -1) : undefined;
  return value.subarray(0, end);
}

async function printSecrets(context: Context, secrets: readonly Secret[]): Promise<void> {
  if (secrets.length === 0) {
    await context.print('There are no secrets.');
    return;
  }
  const { style } = context;
  const when = (time: string | null): string =>
    time === null ? '' : formatRelativeTime(time, context.io.now());
  const lines = formatTable(
    secrets,
    [
      { title: 'NAME', value: ({ name }) => name },
      { title: 'FOR', value: ({ profile }) => profile ?? 'all profiles' },
      { title: 'VERSION', value: ({ version }) => String(version), align: 'right' },
      {
        title: 'STATE',
        value: ({ state }) => state,
        paint: ({ state }) => (state === 'usable' ? style.green : style.red),
      },
      { title: 'SET', value: ({ setAt }) => when(setAt) },
      { title: 'EXPIRES', value: ({ expiresAt }) => expiresAt ?? 'never' },
      { title: 'USED', value: ({ lastUsedAt }) => when(lastUsedAt) },
    ],
    { width: context.stdout.columns, header: style.dim },
  );
  await context.print(...lines);
}
