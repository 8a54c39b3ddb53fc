import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ContainerPair } from '../container-pair.ts';

/** The code that the agent's container needs for `Tree`, for `ContainerPairs.createPair`. */
export const TREE_CODE = { 'tree.py': readFileSync(join(import.meta.dirname, 'tree.py'), 'utf8') };

/** What one path is, in every attribute that a snapshot keeps. */
export type TreeDescription = Readonly<Record<string, unknown>>;

/** A session's workspace, made and looked at by its agent. */
export class Tree {
  readonly #pair: ContainerPair;

  constructor(pair: ContainerPair) {
    this.#pair = pair;
  }

  make(seed: number, depth = 3): Promise<void> {
    return this.#deed('make', String(seed), String(depth));
  }

  edit(seed: number): Promise<void> {
    return this.#deed('edit', String(seed));
  }

  clear(): Promise<void> {
    return this.#deed('clear');
  }

  /** By path, which is in hexadecimal because names are bytes. */
  async describe(): Promise<Readonly<Record<string, TreeDescription>>> {
    await this.#deed('describe', '/run/holdfast/tree.json');
    return JSON.parse(readFileSync(this.#pair.path('run/tree.json'), 'utf8')) as Record<
      string,
      TreeDescription
    >;
  }

  async #deed(...deed: string[]): Promise<void> {
    const { exitCode, output } = await this.#pair.runInAgent(['python3', '/agent/tree.py', ...deed]);
    if (exitCode !== 0) throw new Error(`the tree was not made: ${output}`);
  }
}

/** Paths at which two descriptions differ, readable. */
export function differences(
  one: Readonly<Record<string, TreeDescription>>,
  other: Readonly<Record<string, TreeDescription>>,
): string[] {
  const paths = [...new Set([...Object.keys(one), ...Object.keys(other)])].sort();
  return paths
    .filter((path) => JSON.stringify(one[path]) !== JSON.stringify(other[path]))
    .map((path) => {
      const name = JSON.stringify(Buffer.from(path, 'hex').toString('latin1'));
      return `${name}: ${JSON.stringify(one[path])} → ${JSON.stringify(other[path])}`;
    });
}
