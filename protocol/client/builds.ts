import type { ClientInfo } from '../methods.ts';

type Build = Pick<ClientInfo, 'version' | 'build' | 'builtAt'>;

/** Compares by version, then by the time of the build: < 0 if `left` is older than `right`, > 0 if newer, 0 if equal. */
export function compareBuilds(left: Build, right: Build): number {
  const byVersion = compareVersions(left.version, right.version);
  if (byVersion !== 0) return byVersion;
  return left.build === right.build ? 0 : left.builtAt - right.builtAt;
}

/** Compares semantic versions. A pre-release comes before its release. Anything else counts as 0.0.0. */
export function compareVersions(left: string, right: string): number {
  const a = readVersion(left);
  const b = readVersion(right);
  for (const at of [0, 1, 2] as const) {
    if (a.numbers[at] !== b.numbers[at]) return a.numbers[at] - b.numbers[at];
  }
  return comparePreReleases(a.preRelease, b.preRelease);
}

interface Version {
  readonly numbers: readonly [number, number, number];
  readonly preRelease: readonly string[];
}

function readVersion(text: string): Version {
  const match = /^v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+.*)?$/.exec(text);
  return {
    numbers: [Number(match?.[1] ?? 0), Number(match?.[2] ?? 0), Number(match?.[3] ?? 0)],
    preRelease: match?.[4]?.split('.') ?? [],
  };
}

function comparePreReleases(left: readonly string[], right: readonly string[]): number {
  if (left.length === 0 || right.length === 0) return right.length - left.length;
  for (let at = 0; at < Math.max(left.length, right.length); at++) {
    const a = left[at];
    const b = right[at];
    if (a === undefined) return -1;
    if (b === undefined) return 1;
    if (a === b) continue;
    const [numberA, numberB] = [/^\d+$/.test(a), /^\d+$/.test(b)];
    if (numberA && numberB && Number(a) !== Number(b)) return Number(a) - Number(b);
    // Numeric identifiers come before alphanumeric ones.
    if (numberA !== numberB) return numberA ? -1 : 1;
    return a < b ? -1 : 1;
  }
  return 0;
}
