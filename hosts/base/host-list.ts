import { randomBytes } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { HomeIdSchema } from '../../protocol/ids.ts';
import { formatDestination, parseDestination } from './destination.ts';

/** `local` is this machine. */
export const LOCAL = 'local';
const MAX_HOSTS = 200;
const MAX_FILE_BYTES = 1024 * 1024;
const MAX_PROBLEM = 500;

export const HostNameSchema = z
  .string()
  .regex(/^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/, 'lower-case letters, digits, `.`, `_` and `-`')
  .refine((name) => name !== LOCAL, '`local` is this machine');

/** Another machine with a supervisor. */
export const HostSchema = z.object({
  name: HostNameSchema,
  /** As `formatDestination` writes it. */
  destination: z.string().max(400),
  /** ISO 8601. */
  addedAt: z.string().max(40),
  /** The id of the home there, once a client has connected: links name it. */
  homeId: HomeIdSchema.optional(),
  /** Why Holdfast or its images could not be brought there at the last try. */
  problem: z.string().max(MAX_PROBLEM).optional(),
});
export type Host = z.infer<typeof HostSchema>;

const FileSchema = z.object({ version: z.literal(1), hosts: z.array(HostSchema).max(MAX_HOSTS) });

/** A free name for a host that a person gave by its destination. */
export function suggestHostName(destination: string, taken: readonly string[]): string {
  const { host } = parseDestination(destination);
  const plain = host
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, '-')
    .replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, '')
    .slice(0, 40);
  const base = HostNameSchema.safeParse(plain).success ? plain : 'host';
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? base : `${base}-${number}`;
    if (!taken.includes(name)) return name;
  }
}

/** The hosts of a home, in `hosts.json` (0600). It is read again each time: other programs change it as well. */
export class HostList {
  readonly #root: string;

  /** `root`: the home. */
  constructor(root: string) {
    this.#root = root;
  }

  /** By name. Errors: `home_damaged`. */
  all(): readonly Host[] {
    let text: string;
    try {
      text = readFileSync(this.#file, 'utf8');
    } catch (error) {
      if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR'))
        return [];
      throw HoldfastError.from(error, `The list of hosts cannot be read: ${this.#file}`);
    }
    try {
      if (text.length > MAX_FILE_BYTES) throw new Error('it is too large');
      return FileSchema.parse(JSON.parse(text)).hosts;
    } catch (cause) {
      throw new HoldfastError('home_damaged', `The list of hosts is damaged: ${this.#file}`, {
        why: cause instanceof Error ? cause.message : String(cause),
        next: 'remove the file and add your hosts again with `holdfast host add`; nothing on them is lost',
        cause,
      });
    }
  }

  /** Errors: `not_found`. */
  get(name: string): Host {
    const found = this.all().find((host) => host.name === name);
    if (found !== undefined) return found;
    const names = this.all().map((host) => host.name);
    throw new HoldfastError('not_found', `There is no host ${JSON.stringify(name)}`, {
      ...(names.length === 0 ? {} : { why: `the hosts are: ${names.join(', ')}` }),
      next: 'add it with `holdfast host add NAME ssh://…`',
    });
  }

  /** The same host again changes nothing. Errors: `already_exists` for a name with another destination. */
  add(name: string, destination: string, now: Date): Host {
    const parsed = HostNameSchema.safeParse(name);
    if (!parsed.success) {
      throw new HoldfastError('invalid_params', `${JSON.stringify(name)} cannot be the name of a host`, {
        why: parsed.error.issues[0]?.message,
      });
    }
    const canonical = formatDestination(parseDestination(destination));
    const hosts = this.all();
    const known = hosts.find((host) => host.name === name);
    if (known?.destination === canonical) return known;
    if (known !== undefined) {
      throw new HoldfastError('already_exists', `The host ${name} is ${known.destination}`, {
        next: `choose another name, or remove it first with \`holdfast host rm ${name}\``,
      });
    }
    if (hosts.length >= MAX_HOSTS)
      throw new HoldfastError('overloaded', `There are ${MAX_HOSTS} hosts already`, {
        next: 'remove some with `holdfast host rm`',
      });
    const host: Host = { name, destination: canonical, addedAt: now.toISOString() };
    this.#write([...hosts, host].sort((a, b) => (a.name < b.name ? -1 : 1)));
    return host;
  }

  /** Removes the name. What is on that machine stays. Errors: `not_found`. */
  remove(name: string): Host {
    const host = this.get(name);
    this.#write(this.all().filter((one) => one.name !== name));
    return host;
  }

  /**
   * What the supervisor there says its home is. Writes nothing where that is known, or the host has been removed. False:
   * another host of the list has that home, which both cannot have.
   */
  setHomeId(name: string, homeId: string): boolean {
    const hosts = this.all();
    if (hosts.some((other) => other.name !== name && other.homeId === homeId)) return false;
    const host = hosts.find((one) => one.name === name);
    if (host !== undefined && host.homeId !== homeId)
      this.#write(hosts.map((one) => (one === host ? { ...host, homeId } : one)));
    return true;
  }

  /** Null: everything was brought there. Writes nothing where that is known, or the host has been removed. */
  setProblem(name: string, problem: string | null): void {
    const hosts = this.all();
    const host = hosts.find((one) => one.name === name);
    if (host === undefined || (host.problem ?? null) === problem) return;
    const { problem: _, ...plain } = host;
    const changed = problem === null ? plain : { ...plain, problem: problem.slice(0, MAX_PROBLEM) };
    this.#write(hosts.map((one) => (one === host ? changed : one)));
  }

  #write(hosts: readonly Host[]): void {
    mkdirSync(this.#root, { recursive: true, mode: 0o700 });
    const temporary = `${this.#file}.${randomBytes(6).toString('hex')}`;
    const descriptor = openSync(temporary, 'wx', 0o600);
    try {
      writeSync(descriptor, `${JSON.stringify({ version: 1, hosts }, null, 2)}\n`);
      fsyncSync(descriptor);
      closeSync(descriptor);
      renameSync(temporary, this.#file);
    } catch (error) {
      rmSync(temporary, { force: true });
      throw HoldfastError.from(error, `The list of hosts cannot be written: ${this.#file}`);
    }
  }

  get #file(): string {
    return join(this.#root, 'hosts.json');
  }
}
