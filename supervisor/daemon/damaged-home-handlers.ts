import type { HoldfastError } from '../../protocol/errors.ts';
import { METHODS } from '../../protocol/methods.ts';
import type { Methods } from '../../protocol/methods.ts';
import type { HandlerTable } from '../rpc/handler-table.ts';
import type { Doctor } from '../doctor/doctor.ts';
import type { ProcessControl } from './handlers.ts';

/** The methods that METHODS declares as `whenDamaged: 'answers'`. */
type Answered = {
  [M in keyof HandlerTable]: Methods[M]['whenDamaged'] extends 'answers' ? M : never;
}[keyof HandlerTable];
type Refused = Exclude<keyof HandlerTable, Answered>;

/** For a home whose database cannot be read: diagnosis, shutdown and purge still work. Other methods fail with `damage`. */
export function createDamagedHomeHandlers(
  damage: HoldfastError,
  doctor: Pick<Doctor, 'run'>,
  control: Pick<ProcessControl, 'shutDownSoon' | 'purge'>,
): HandlerTable {
  const answered: Pick<HandlerTable, Answered> = {
    ping: () => ({}),
    'supervisor/stop': () => {
      control.shutDownSoon('stop');
      return { stopped: 0 };
    },
    'supervisor/handover': () => {
      control.shutDownSoon('handover');
      return { leaving: true };
    },
    'supervisor/doctor': async () => ({ checks: await doctor.run() }),
    purge: control.purge,
  };
  const refuse = (): never => {
    throw damage;
  };
  const refused = Object.entries(METHODS)
    .filter(([, { whenDamaged }]) => whenDamaged === 'refused')
    .map(([name]) => [name, refuse] as const);
  // METHODS has every method of `Refused`, and the filter above takes just those.
  return { ...(Object.fromEntries(refused) as Record<Refused, () => never>), ...answered };
}
