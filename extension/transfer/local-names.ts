import { isConfigurationName } from '../files/configuration-paths.ts';

/** Names that Windows reserves for devices, with any extension. */
const DEVICES = /^(con|prn|aux|nul|com[1-9¹²³]|lpt[1-9¹²³]|conin\$|conout\$)\s*(\.|$)/i;
// eslint-disable-next-line no-control-regex -- Windows refuses control characters
const NOT_ON_WINDOWS = /[<>:"/\\|?*\u0000-\u001f]|[. ]$/;
/** Characters that some file systems ignore when they compare names. */
const IGNORED = /[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;

/**
 * Why a file of this machine must not or cannot have this name from a workspace; undefined where it can. Names are
 * compared as the most permissive file system compares them.
 */
export function localNameProblem(name: Buffer, platform: NodeJS.Platform): string | undefined {
  const text = name.toString('utf8');
  if (name.length === 0 || text === '.' || text === '..' || name.includes(0x2f) || name.includes(0)) {
    return 'it is not a valid name';
  }
  if (isGitFolder(text)) return 'git on this machine would run programs that its configuration names';
  if (isConfigurationName(text))
    return 'VS Code or an agent on this machine would read it as its own configuration';
  if (platform === 'linux') return undefined;
  if (!Buffer.from(text, 'utf8').equals(name)) return 'its name is not Unicode';
  if (platform === 'win32' && (NOT_ON_WINDOWS.test(text) || DEVICES.test(text))) {
    return 'Windows does not allow the name';
  }
  return undefined;
}

/** Whether some file system resolves this name to `.git`. */
function isGitFolder(name: string): boolean {
  const plain = name
    .normalize('NFKC')
    .replace(IGNORED, '')
    .toLowerCase()
    .replace(/:.*$/, '')
    .replace(/[. ]+$/, '');
  return plain === '.git' || plain === 'git~1';
}

/** Equal for names that a file system without case or Unicode normalization distinctions treats as one. */
export function foldedName(name: Buffer): string {
  return name.toString('latin1') === name.toString('utf8')
    ? name.toString('latin1').toLowerCase()
    : name.toString('utf8').normalize('NFC').toLowerCase();
}

/**
 * Why a link with this target must not be created; undefined where it may. `depth`: how many folders below the chosen
 * folder the link is. `..` is allowed only at the start of the target, where the folders are real: after another link
 * it would lead elsewhere.
 */
export function linkProblem(target: string, depth: number, platform: NodeJS.Platform): string | undefined {
  const outside = 'it points outside the chosen folder';
  if (target === '' || target.startsWith('/')) return outside;
  if (platform === 'win32' && /[\\:]/.test(target)) return outside;
  const parts = target.split('/').filter((part) => part !== '' && part !== '.');
  const down = parts.findIndex((part) => part !== '..');
  const ups = down < 0 ? parts.length : down;
  if (ups > depth || parts.slice(ups).includes('..')) return outside;
  return parts.some((part) => part !== '..' && isGitFolder(part)) ? 'it points into a git folder' : undefined;
}
