import type { HANDOFF_METHODS } from '../../../protocol/handoff.ts';
import { type Handlers, withBytes } from '../../../protocol/wire/shapes.ts';
import type { HandoffService } from '../../handoff/handoff-service.ts';

/** The answers to `handoff/*`. */
export function handoffHandlers<P>({
  handoffs,
}: {
  readonly handoffs: HandoffService;
}): Handlers<typeof HANDOFF_METHODS, P> {
  return {
    'handoff/begin': (request, { signal }) => handoffs.begin(request, signal),
    'handoff/changes': (request, { signal }) => handoffs.changes(request, signal),
    'handoff/contents': async (request, { signal }) => {
      const { sizes, bytes } = await handoffs.contents(request, signal);
      return withBytes({ sizes }, bytes);
    },
    'handoff/record': (request) => handoffs.record(request),
  };
}
