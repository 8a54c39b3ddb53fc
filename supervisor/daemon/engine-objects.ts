import type { Garbage } from '../../protocol/entities.ts';
import type { Engine, ObservedObject } from '../engine/port.ts';

/**
 * Removes every container, volume and prepared image of this home. Containers first: a volume in use cannot be removed. Images are
 * listed last, because one that was just being stored appears late. An image that somebody's own container uses stays, and is reported.
 */
export async function removeEngineObjects(
  engine: Engine,
  reportKept: (image: ObservedObject, error: unknown) => void,
): Promise<Garbage[]> {
  const objects = await engine.observe();
  const containers = objects.filter(({ kind }) => kind === 'container');
  const sessions = new Set(containers.flatMap(({ sessionId }) => (sessionId === null ? [] : [sessionId])));
  await Promise.all([...sessions].map((sessionId) => engine.removeSandbox(sessionId, 0)));
  for (const object of containers.filter(({ sessionId }) => sessionId === null))
    await engine.removeObject(object);
  const others = (await engine.observe()).filter(({ kind }) => kind !== 'container');
  for (const object of others) await engine.removeObject(object);
  const removed = [...containers, ...others];
  for (const image of await engine.observeImages()) {
    try {
      await engine.removeObject(image);
      removed.push(image);
    } catch (error) {
      reportKept(image, error);
    }
  }
  return removed.map((object) => describeGarbage(object, 'purged'));
}

export function describeGarbage(object: ObservedObject, why: string): Garbage {
  const kind = object.kind === 'network' ? 'volume' : object.kind;
  return { kind, name: object.name, why, bytes: null };
}

/** Removes helper containers of a supervisor that was killed. The engine does not list those that this process uses. */
export async function removeLeftoverHelpers(engine: Engine): Promise<void> {
  const helpers = (await engine.observe()).filter(({ role }) => role === 'helper');
  for (const helper of helpers) await engine.removeObject(helper);
}
