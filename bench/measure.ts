import { availableParallelism, cpus, loadavg, release } from 'node:os';
import { performance } from 'node:perf_hooks';

/** Samples of one contestant, ms, as they came. */
export type Samples = readonly number[];

export function quantile(samples: Samples, q: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}
export const median = (samples: Samples): number => quantile(samples, 0.5);
export const p99 = (samples: Samples): number => quantile(samples, 0.99);

/** How long it takes, ms. */
export async function timed(action: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await action();
  return performance.now() - start;
}

/**
 * Runs the contestants in turn, `rounds` times, each round in another order, so that a busy moment of the machine hits all
 * of them alike. A contestant that times itself returns ms; of the others the whole call counts.
 */
export async function interleave<K extends string>(
  rounds: number,
  contestants: Readonly<Record<K, () => number | undefined | Promise<number | undefined>>>,
): Promise<Record<K, number[]>> {
  const names = Object.keys(contestants) as K[];
  const samples = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<K, number[]>;
  for (let round = 0; round < rounds; round += 1) {
    const shift = round % names.length;
    for (const name of [...names.slice(shift), ...names.slice(0, shift)]) {
      const start = performance.now();
      const own = await contestants[name]();
      samples[name].push(own ?? performance.now() - start);
    }
  }
  return samples;
}

export interface Figure {
  readonly name: string;
  readonly ours: number;
  readonly unit: string;
  readonly p99?: number;
  readonly peer?: { readonly name: string; readonly value: number };
  /** ours / peer where there is a peer, else the figure itself; held against `target`. */
  readonly ratio?: number;
  readonly target?: { readonly atLeast: number } | { readonly atMost: number };
  readonly samples?: number;
}

/** Collects figures and prints them: for people as lines, with `--json` as one document. */
export class Report {
  readonly #title: string;
  readonly #json: boolean;
  readonly #versions: Record<string, string>;
  readonly #figures: Figure[] = [];
  readonly #loadAtStart = loadavg();

  constructor(title: string, versions: Record<string, string> = {}, argv: readonly string[] = process.argv) {
    this.#title = title;
    this.#json = argv.includes('--json');
    this.#versions = { node: process.version, kernel: release(), ...versions };
    if (!this.#json) {
      console.log(title);
      console.log(
        `  ${cpus()[0]?.model ?? 'unknown CPU'}, ${availableParallelism()} cores, load ${load(this.#loadAtStart)}`,
      );
      const list = Object.entries(this.#versions).map(([name, version]) => `${name} ${version}`);
      console.log(`  ${list.join(', ')}`);
    }
  }

  add(figure: Figure): void {
    this.#figures.push(figure);
    if (!this.#json) console.log(`  ${line(figure)}`);
  }

  /** Whether every target was met; prints the document where JSON was asked for. */
  finish(): boolean {
    const missed = this.#figures.filter((figure) => met(figure) === false);
    if (this.#json) {
      const machine = {
        cpu: cpus()[0]?.model ?? null,
        cores: availableParallelism(),
        loadBefore: this.#loadAtStart,
        loadAfter: loadavg(),
      };
      const figures = this.#figures.map((figure) => ({ ...figure, met: met(figure) }));
      console.log(JSON.stringify({ title: this.#title, machine, versions: this.#versions, figures }));
    } else {
      console.log(`  load afterwards ${load(loadavg())}; ${missed.length} of ${this.#figures.length} missed`);
    }
    return missed.length === 0;
  }
}

function met({ ours, ratio, target }: Figure): boolean | null {
  if (target === undefined) return null;
  const value = ratio ?? ours;
  return 'atLeast' in target ? value >= target.atLeast : value <= target.atMost;
}

function line(figure: Figure): string {
  const parts = [`${figure.name}: ${number(figure.ours)} ${figure.unit}`];
  if (figure.p99 !== undefined) parts.push(`p99 ${number(figure.p99)}`);
  if (figure.peer !== undefined)
    parts.push(`${figure.peer.name} ${number(figure.peer.value)} ${figure.unit}`);
  if (figure.ratio !== undefined) parts.push(`ratio ${figure.ratio.toFixed(2)}`);
  if (figure.target !== undefined) {
    const wanted = 'atLeast' in figure.target ? `≥ ${figure.target.atLeast}` : `≤ ${figure.target.atMost}`;
    parts.push(`${met(figure) === true ? 'met' : 'MISSED'} (${wanted})`);
  }
  return parts.join(' · ');
}

function number(value: number): string {
  if (value >= 1000) return Math.round(value).toLocaleString('en');
  return value.toPrecision(3);
}

function load(values: readonly number[]): string {
  return values.map((value) => value.toFixed(2)).join(' ');
}
