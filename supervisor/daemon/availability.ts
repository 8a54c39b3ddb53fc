import type { HoldfastError } from '../../protocol/errors.ts';
import type { HandlerTable } from '../rpc/handler-table.ts';

type AnyHandler = (params: unknown, context: unknown) => unknown;

/** The same table, except that a method fails first with the error that `refuse` returns for it. */
export function refuseUnavailable(
  table: HandlerTable,
  refuse: (method: keyof HandlerTable) => HoldfastError | null,
): HandlerTable {
  const wrapped = Object.entries(table).map(([name, handler]) => {
    const run: AnyHandler = (params, context) => {
      const refusal = refuse(name as keyof HandlerTable);
      if (refusal !== null) throw refusal;
      return (handler as AnyHandler)(params, context);
    };
    return [name, run];
  });
  // Each handler keeps its name, so the type of the table holds.
  return Object.fromEntries(wrapped) as HandlerTable;
}
