import { z } from 'zod';
import { CREDENTIAL_PRESET_NAMES } from '../credential-presets.ts';
import { HomePathSchema } from '../agent-home.ts';

/**
 * What is known about an agent: a small data file. `agent: { preset: NAME }` takes `protocol`, `command`, `state` and
 * `caches` from it, and the profile's own fields override them.
 */
export const PresetSchema = z.strictObject({
  /** The program's own name, for people. */
  title: z.string().min(1),
  /** The npm packages that it needs, in the versions that were tried, the first one with the program. `setup.packages: auto` installs them. */
  packages: z.array(z.string().regex(/^(@[^@/]+\/)?[^@/]+@\d+\.\d+\.\d+$/)).min(1),
  /** The version that this was tried with. */
  triedWith: z.string().regex(/^\d+\.\d+\.\d+$/),
  /** Speaks the Agent Client Protocol on its standard input and output. */
  acp: z.array(z.string().min(1)).min(1),
  /** Answers one prompt, the last argument, and ends. */
  command: z.array(z.string().min(1)).min(1),
  /** How `command` goes on with its last conversation instead; null if it cannot. */
  continues: z.array(z.string().min(1)).min(1).nullable(),
  state: z.array(HomePathSchema).min(1),
  caches: z.array(HomePathSchema),
  /** Files with its keys and tokens: never in snapshots, forks or copied configuration. */
  signIn: z.array(HomePathSchema).min(1),
  /** Signing in with an account instead of a key. */
  login: z.strictObject({
    /** Why Holdfast does not offer it: the provider's rule or the client's design, a clause for people. */
    refused: z.string().min(1),
    /** Where people get a key for `credential` instead. */
    from: z.url(),
  }),
  /** A person's own configuration: what `agent.config` copies, as paths below HOME. */
  configuration: z.array(HomePathSchema),
  /** The variables of its endpoint and its key; null if it reads them from a file only. */
  endpoint: z.strictObject({ baseUrl: z.string(), key: z.string() }).nullable(),
  /** The entry of `credentials` that its model usually needs, and the variables that a profile with that entry gets. */
  credential: z.strictObject({
    name: z.enum(CREDENTIAL_PRESET_NAMES),
    env: z.record(z.string(), z.string()),
  }),
  /** Variables that quieten it or that it needs in a sandbox. */
  env: z.record(z.string(), z.string()),
  /** Variables, over ACP, with which it asks before it edits or runs something (null: it does so anyway), and with which it asks nothing. */
  asking: z
    .strictObject({ ask: z.record(z.string(), z.string()), allow: z.record(z.string(), z.string()) })
    .nullable(),
  /** Hosts that it calls: for its model, and without being asked. */
  hosts: z.strictObject({ model: z.array(z.string()), unasked: z.array(z.string()) }),
  quirks: z.array(z.string()),
});
export type Preset = z.infer<typeof PresetSchema>;
