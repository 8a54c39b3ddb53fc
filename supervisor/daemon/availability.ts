import type { HoldfastError } from '../../protocol/errors.ts';
import type { HandlerTable } from '../rpc/handler-table.ts';

type AnyHandler = (params: unknown, context: unknown) => unknown;

/** The same table, but a method that `refuse` has an error for fails with it before anything is done. */
export function refuseUnavailable(
  table: HandlerTable,
  refuse: (method: keyof HandlerTable) => HoldfastError | null,
): HandlerTable {
  const gated = Object.entries(table).map(([name, handler]) => {
    const run: AnyHandler = (params, context) => {
      const refusal = refuse(name as keyof HandlerTable);
      if (refusal !== null) throw refusal;
      return (handler as AnyHandler)(params, context);
    };
    return [name, run];
  });
  // Each handler stands under its own name again, so the table's type holds.
  return Object.fromEntries(gated) as HandlerTable;
}
