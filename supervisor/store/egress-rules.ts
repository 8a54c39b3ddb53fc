import { z } from 'zod';
import { RuleScopeSchema } from '../../protocol/egress.ts';
import { flag, parseRow, time } from './columns.ts';
import type { Database } from './database.ts';

const EgressRuleRowSchema = z.object({
  id: z.int().positive(),
  scope: RuleScopeSchema,
  /** The session's id; for the scope `profile`, the profile's name. */
  owner: z.string(),
  /** Canonical. */
  host: z.string(),
  effect: z.enum(['allow', 'deny']),
  tcp: flag,
  ech: flag,
  addedAt: time,
});
export type EgressRuleRow = z.output<typeof EgressRuleRowSchema>;

/** Rules that people added to those of `holdfast.yaml`. */
export class EgressRules {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Rules of a session and of its profile, the oldest first. */
  listFor(sessionId: string, profile: string): EgressRuleRow[] {
    return this.#database
      .all(
        `SELECT * FROM egress_rules WHERE (scope <> 'profile' AND owner = ?) OR (scope = 'profile' AND owner = ?) ORDER BY id`,
        sessionId,
        profile,
      )
      .map((row) => parseRow(EgressRuleRowSchema, 'egress_rules', row));
  }

  /** Adds a rule, or replaces the scope's rule for the same host. */
  put(row: Omit<EgressRuleRow, 'id'>): void {
    this.#database.run(
      `INSERT INTO egress_rules (scope, owner, host, effect, tcp, ech, addedAt) VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (scope, owner, host) DO UPDATE SET effect = excluded.effect, tcp = excluded.tcp,
         ech = excluded.ech, addedAt = excluded.addedAt`,
      row.scope,
      row.owner,
      row.host,
      row.effect,
      row.tcp ? 1 : 0,
      row.ech ? 1 : 0,
      row.addedAt,
    );
  }

  /** False if another connection has used up the rule. */
  remove(id: number): boolean {
    return this.#database.run('DELETE FROM egress_rules WHERE id = ?', id) > 0;
  }

  /** Denies another session what people denied this one. What they allowed it stays its own. Call it in a transaction. */
  copyDenials(from: string, to: string): void {
    this.#database.run(
      `INSERT INTO egress_rules (scope, owner, host, effect, tcp, ech, addedAt)
       SELECT scope, ?, host, effect, tcp, ech, addedAt FROM egress_rules
       WHERE scope = 'session' AND owner = ? AND effect = 'deny' ORDER BY id`,
      to,
      from,
    );
  }

  /** Removes the rules of one session. */
  removeSession(sessionId: string): void {
    this.#database.run(`DELETE FROM egress_rules WHERE scope <> 'profile' AND owner = ?`, sessionId);
  }

  removeProfile(profile: string): void {
    this.#database.run(`DELETE FROM egress_rules WHERE scope = 'profile' AND owner = ?`, profile);
  }
}
