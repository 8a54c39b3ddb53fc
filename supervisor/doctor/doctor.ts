import { z } from 'zod';
import type { Check } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { HOW_TO_GET_HOLDFAST_IMAGES } from '../engine/holdfast-images.ts';
import type { Engine, ObservedObject, ObservedSandbox } from '../engine/port.ts';
import { planRepairs } from '../sandboxes/repair-plan.ts';
import type { SecretStore } from '../secrets/secret-store.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { Sessions } from '../store/sessions.ts';
import { capabilityChecks, engineCheck, factChecks, ok, problem, warning } from './engine-checks.ts';
import { machineChecks } from './machine-checks.ts';
import { readMachineFacts } from './machine-facts.ts';
import { secretChecks } from './secret-checks.ts';

export interface DoctorOptions {
  readonly home: Home;
  readonly engine: Engine;
  readonly program: { readonly sidecarImage: string; readonly agentImage: string };
  /** Null if the database cannot be read. */
  readonly database: Database | null;
  readonly sessions: Sessions | null;
  readonly secrets: Pick<SecretStore, 'list'> | null;
  /** What is made ahead for sessions has a sidecar, and no session. */
  readonly spares: { readonly has: (id: string) => boolean } | null;
  readonly damage: HoldfastError | null;
  /** Why the egress proxy cannot be a process of this machine instead of a container; null if it can. */
  readonly proxyChildProblem: () => string | null;
  readonly now?: () => number;
}

/** Checks everything that sessions depend on. Changes nothing; a container that it starts is removed. */
export class Doctor {
  readonly #options: DoctorOptions;

  constructor(options: DoctorOptions) {
    this.#options = options;
  }

  async run(): Promise<Check[]> {
    const status = await this.#options.engine.probe();
    const parts = await Promise.all([
      this.#guarded('machine', async () => machineChecks(await readMachineFacts(this.#options.home.root))),
      this.#guarded('database', async () => this.#database()),
      this.#guarded('secrets', async () => secretChecks(this.#options.secrets?.list() ?? [])),
      Promise.resolve([engineCheck(status)]),
      status.reachable ? this.#guarded('engine', () => this.#engine()) : Promise.resolve([]),
      status.reachable ? this.#guarded('sessions', () => this.#sessions()) : Promise.resolve([]),
    ]);
    return parts.flat();
  }

  /** A check that fails to run is a finding, and the other checks continue. */
  async #guarded(name: string, check: () => Promise<Check[]>): Promise<Check[]> {
    try {
      return await check();
    } catch (error) {
      const { sentence } = HoldfastError.from(error, `${name} could not be checked`);
      return [problem(name, sentence, 'see `holdfast supervisor logs`')];
    }
  }

  #database(): Check[] {
    const { database, damage } = this.#options;
    if (damage !== null || database === null) {
      return [problem('database', damage?.why ?? 'it cannot be opened', damage?.next ?? null)];
    }
    const rows = z.array(z.record(z.string(), z.string())).parse(database.all('PRAGMA quick_check(3)'));
    const found = rows.flatMap((row) => Object.values(row));
    if (found.length === 1 && found[0] === 'ok') {
      return [ok('database', `intact, ${Math.ceil(database.sizeBytes() / 1024)} KiB`)];
    }
    return [
      problem(
        'database',
        found.join('; '),
        "stop the supervisor and restore the newest file from the home's `backups` folder",
      ),
    ];
  }

  async #engine(): Promise<Check[]> {
    const { engine, program } = this.#options;
    const now = this.#options.now ?? (() => Date.now());
    const asked = now();
    const facts = await engine.facts();
    // The engine read its clock about half-way.
    const middle = (asked + now()) / 2;
    const images = await Promise.all(
      [
        { name: 'sidecar image', reference: program.sidecarImage, needed: 'sessions cannot start' },
        {
          name: 'agent image',
          reference: program.agentImage,
          needed: 'profiles without an `image` cannot be deployed',
        },
      ].map(async ({ name, reference, needed }) =>
        (await engine.images.has(reference))
          ? ok(name, reference)
          : problem(name, `${reference} is not on the engine: ${needed}`, HOW_TO_GET_HOLDFAST_IMAGES),
      ),
    );
    const tried = await Promise.all([this.#isolation(), this.#egressProxy()]);
    return [...capabilityChecks(engine.status()), ...factChecks(facts, middle), ...tried, ...images];
  }

  /** Tried in a container: what an engine says about itself and what it does are two things. */
  async #isolation(): Promise<Check> {
    const { engine, program } = this.#options;
    if (!(await engine.images.has(program.sidecarImage)))
      return warning('system calls', 'not tried: the sidecar image is missing', HOW_TO_GET_HOLDFAST_IMAGES);
    try {
      await engine.tryIsolation();
      return ok('system calls', "filtered by Holdfast's own profile (tried in a container)");
    } catch (error) {
      return problem(
        'system calls',
        HoldfastError.from(error).sentence,
        'use an engine that applies the seccomp profile of a container: Docker 20.10.10 or newer on a kernel with seccomp, and a `runtime` that does (runc); until then sandboxes can open AF_VSOCK sockets, past all egress rules',
      );
    }
  }

  /** Starts one beside the one that may run, and ends it. */
  async #egressProxy(): Promise<Check> {
    const { engine, program } = this.#options;
    const name = 'egress proxy';
    if (!(await engine.images.has(program.sidecarImage)))
      return warning(name, 'not tried: the sidecar image is missing', HOW_TO_GET_HOLDFAST_IMAGES);
    try {
      const proxy = await engine.startEgressProxy();
      await proxy.stop();
      return ok(
        name,
        'what sandboxes send is read in a container without network, rights and secrets (tried)',
      );
    } catch (error) {
      const { sentence } = HoldfastError.from(error);
      const missing = this.#options.proxyChildProblem();
      if (missing === null)
        return warning(
          name,
          `a process of this machine, without rights and network, reads what sandboxes send, because no container can: ${sentence}`,
          'see `holdfast supervisor logs`',
        );
      return problem(
        name,
        `nothing can read what sandboxes send, so they have no network. No container: ${sentence}. No process of this machine: ${missing}`,
        'see `holdfast supervisor logs`; sessions without `egress` and `credentials` work',
      );
    }
  }

  async #sessions(): Promise<Check[]> {
    const { engine, sessions, spares } = this.#options;
    if (sessions === null) return [];
    const observed = sandboxes(await engine.observe());
    const rows = new Map(sessions.all().map((row) => [row.id, row]));
    const ids = new Set([...rows.keys(), ...observed.keys()]);
    const differing = [...ids].filter((id) => {
      if (spares?.has(id) === true) return false;
      const sandbox = observed.get(id) ?? { sessionId: id, sidecar: null, agent: null };
      return planRepairs(rows.get(id) ?? null, sandbox).length > 0;
    });
    if (differing.length === 0) return [ok('sessions', `${rows.size}, all match the engine`)];
    return [
      warning(
        'sessions',
        `${differing.length} differ from the state on the engine: ${differing.slice(0, 5).join(', ')}`,
        'the supervisor corrects them within seconds; if this remains, see `holdfast supervisor logs`',
      ),
    ];
  }
}

function sandboxes(objects: readonly ObservedObject[]): Map<string, ObservedSandbox> {
  const found = new Map<string, ObservedSandbox>();
  for (const { sessionId, role, container } of objects) {
    if (sessionId === null || (role !== 'sidecar' && role !== 'agent')) continue;
    const before = found.get(sessionId) ?? { sessionId, sidecar: null, agent: null };
    found.set(sessionId, { ...before, [role]: container });
  }
  return found;
}
