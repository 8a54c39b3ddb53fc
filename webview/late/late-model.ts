import type { z } from 'zod';
import { LATE_REQUESTS, TO_LATE } from '../late-messages.ts';
import type { LateRequestName, LateRequests } from '../late-messages.ts';
import type { RequestResult } from '../link.ts';
import type { PageModel } from '../page-model.ts';
import { SnapshotReader } from './snapshot-list.ts';

/** What the late views show, and what they ask of the extension, beside what the page asks. */
export class LateModel {
  readonly page: PageModel;
  readonly snapshots = new SnapshotReader((cursor) => this.request('snapshots', { cursor }));

  constructor(page: PageModel) {
    this.page = page;
    page.bridge.listen(TO_LATE, { snapshotsChanged: () => this.snapshots.refresh() });
  }

  /** Fails with a sentence that says what was not done, why, and what to do. */
  request<N extends LateRequestName>(
    name: N,
    params: z.input<LateRequests[N]['params']>,
  ): Promise<RequestResult<LateRequests, N>> {
    return this.page.bridge.request(LATE_REQUESTS, name, params);
  }

  /** Sends a request and shows its error, if it fails. Resolves with its result; undefined where it failed. */
  async ask<N extends LateRequestName>(
    name: N,
    params: z.input<LateRequests[N]['params']>,
  ): Promise<RequestResult<LateRequests, N> | undefined> {
    try {
      return await this.request(name, params);
    } catch (error) {
      this.page.fail(error);
      return undefined;
    }
  }
}
