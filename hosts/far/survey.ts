import { HoldfastError } from '../../protocol/errors.ts';
import type { Host } from '../base/host-list.ts';

/** What our script found out about the machine. Its texts come from there and are only for display. */
export interface Survey {
  readonly system: string;
  readonly arch: string;
  readonly user: string;
  /** The home of Holdfast there. */
  readonly root: string;
  readonly libc: string;
  readonly writable: string;
  /** Free space of that disk, KiB. Null: not known. */
  readonly freeKiB: number | null;
  readonly docker: string;
  /** The version of Node on its PATH, empty for none. */
  readonly node: string;
  readonly missing: readonly string[];
}

const WORDS = ['system', 'arch', 'user', 'root', 'libc', 'writable', 'free', 'docker', 'node', 'missing'];

/** Collects the facts line by line. */
export class SurveyReader {
  readonly #facts = new Map<string, string>();

  add(word: string, text: string): void {
    if (WORDS.includes(word)) this.#facts.set(word, text);
  }

  get survey(): Survey {
    const fact = (word: string): string => this.#facts.get(word) ?? '';
    const free = Number(fact('free'));
    return {
      system: fact('system'),
      arch: fact('arch'),
      user: fact('user'),
      root: fact('root'),
      libc: fact('libc'),
      writable: fact('writable'),
      freeKiB: fact('free') !== '' && Number.isSafeInteger(free) ? free : null,
      docker: fact('docker'),
      node: fact('node'),
      missing: fact('missing')
        .split(' ')
        .filter((word) => word === 'node' || word === 'program'),
    };
  }
}

/** `x64` or `arm64`, as npm names them. */
export type Architecture = 'x64' | 'arm64';

export function architectureOf(survey: Survey): Architecture | undefined {
  if (survey.arch === 'x86_64' || survey.arch === 'amd64') return 'x64';
  if (survey.arch === 'aarch64' || survey.arch === 'arm64') return 'arm64';
  return undefined;
}

/** Our program takes some 10 MiB and Node 130 MiB, twice while they are unpacked. */
const NEEDED_KIB = { program: 32 * 1024, node: 320 * 1024 } as const;

const REFUSED = 'refusedByMachine';

/** Whether the login worked, and the machine as it is cannot run the program. */
export function isRefusedByMachine({ details }: HoldfastError): boolean {
  return details?.[REFUSED] === true;
}

/** Why the program cannot be brought to this machine; undefined if it can. */
export function obstacle(host: Host, survey: Survey): HoldfastError | undefined {
  const what = `Holdfast cannot run on ${host.name}`;
  const refuse = (code: HoldfastError['code'], why: string, next: string): HoldfastError =>
    new HoldfastError(code, what, { why, next, details: { [REFUSED]: true } });
  if (survey.system !== 'Linux')
    return refuse(
      'not_supported',
      `it is ${survey.system || 'an unknown system'}`,
      'choose a Linux machine: sandboxes are Linux containers',
    );
  if (architectureOf(survey) === undefined)
    return refuse(
      'not_supported',
      `its processor is ${survey.arch || 'unknown'}`,
      'choose a machine with x86_64 or arm64',
    );
  if (survey.writable === 'no')
    return refuse(
      'permission_denied',
      `${survey.root} cannot be written to`,
      'make the home directory writable there, or set HOLDFAST_HOME in its login environment',
    );
  if (survey.writable === 'full')
    return refuse('no_space', `the disk of ${survey.root} is full`, 'make room on it');
  if (survey.writable === 'noexec')
    return refuse(
      'permission_denied',
      `no program can be run from ${survey.root}: its disk is mounted with noexec`,
      'set HOLDFAST_HOME there to a directory on another disk',
    );
  const needed = survey.missing.reduce(
    (sum, one) => sum + (one === 'node' ? NEEDED_KIB.node : NEEDED_KIB.program),
    0,
  );
  if (survey.freeKiB !== null && survey.freeKiB < needed)
    return refuse(
      'no_space',
      `${survey.root} has ${Math.floor(survey.freeKiB / 1024)} MiB free and ${Math.ceil(needed / 1024)} MiB are needed`,
      'make room on it',
    );
  if (survey.missing.includes('node') && survey.libc === 'musl')
    return refuse(
      'not_supported',
      'it has no Node 24, and ours needs glibc while this machine has musl',
      'install Node 24 there (on Alpine: `apk add nodejs`)',
    );
  return undefined;
}
