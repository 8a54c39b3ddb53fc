import type { z } from 'zod';
import { LATE_REQUESTS } from '../late-messages.ts';
import type { LateRequestName, LateRequests } from '../late-messages.ts';
import type { RequestResult } from '../link.ts';
import type { PageModel } from '../page-model.ts';

/** What the late views ask of the extension, beside what the page asks. */
export class LateModel {
  readonly page: PageModel;

  constructor(page: PageModel) {
    this.page = page;
  }

  /** Fails with a sentence that says what was not done, why, and what to do. */
  request<N extends LateRequestName>(
    name: N,
    params: z.input<LateRequests[N]['params']>,
  ): Promise<RequestResult<LateRequests, N>> {
    return this.page.bridge.request(LATE_REQUESTS, name, params);
  }

  /** Sends a request and shows its error, if it fails. Resolves with whether it succeeded. */
  async ask<N extends LateRequestName>(
    name: N,
    params: z.input<LateRequests[N]['params']>,
  ): Promise<boolean> {
    try {
      await this.request(name, params);
      return true;
    } catch (error) {
      this.page.fail(error);
      return false;
    }
  }
}
