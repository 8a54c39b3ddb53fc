import { performance } from 'node:perf_hooks';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { ConversationItem } from '../../../protocol/conversation.ts';
import type { LiveChunk } from '../../../webview/messages.ts';
import { SOAK, printInSoak } from '../../setup/run-length.ts';
import { editorPaths } from '../harness/editor-paths.ts';
import { TURN, message, page, prompt, running, state } from './conversations.ts';
import { PageHarness } from './page-harness.ts';

const SECONDS = 4;
const EVENTS_PER_SECOND = 500;
/** The extension sends a batch when the page has drawn the one before. */
const BATCHES_PER_SECOND = 20;

/** A message that an agent has been writing for a while, in characters, and what it adds with each event. */
const LONG_MESSAGE = 100_000;
const PARAGRAPH =
  'The parser reads `line` after line, **also** the last one.\n\n- It keeps what it read\n- It flushes\n\n```ts\nconst rows = parse(line);\n```\n\n';
const WORDS = 'and so on, ';

/** How long a page is watched on which nothing happens. */
const IDLE_MS = 5000;

const MeasuredSchema = z.tuple([z.number(), z.array(z.number()), z.number()]);

const items = (from: number, to: number): ConversationItem[] =>
  Array.from({ length: to - from }, (_, n) =>
    message(from + n + 1, `Message **${from + n + 1}**\n\n- a\n- b`),
  );

/** How long the page takes from the conversation to the frame that shows it, ms; the best of some. */
async function paintMs(total: number): Promise<number> {
  const times: number[] = [];
  for (let run = 0; run < 3; run += 1) {
    const harness = await PageHarness.open({ chromium: editorPaths().chromium });
    try {
      await harness.send('state', state());
      await harness.drawn();
      const begun = performance.now();
      const before = total > 100 ? `${total - 99}.${total - 99}` : null;
      await harness.send('begin', page(items(Math.max(0, total - 100), total), { before, total }));
      await harness.page.locator('[data-key]').last().waitFor();
      await harness.drawn();
      times.push(performance.now() - begun);
      expect(await harness.page.locator('[data-key]').count()).toBe(Math.min(total, 100));
    } finally {
      await harness.close();
    }
  }
  return Math.min(...times);
}

// Times depend on what else the machine does: they are printed, not judged. What they depend on here is.
test.runIf(SOAK)('of a long conversation as much is painted as of a short one', async () => {
  const [one, thousand, most] = [await paintMs(1), await paintMs(1000), await paintMs(100_000)];
  printInSoak(
    `first paint: 1 event ${one.toFixed(0)} ms, 1,000 ${thousand.toFixed(0)} ms, 100,000 ${most.toFixed(0)} ms`,
  );
});

describe.runIf(SOAK)('while 500 events a second arrive', () => {
  const perBatch = EVENTS_PER_SECOND / BATCHES_PER_SECOND;

  test('as new items, the document stays bounded, and what is typed is there', async () => {
    const rows = await typeMeanwhile('items', [prompt(1, 'Tell a long story.')], (batch) => ({
      items: Array.from({ length: perBatch }, (_, n) => {
        const id = 10 + batch * perBatch + n;
        return message(id, `Event ${id} of ${TURN}`);
      }),
      chunks: [],
    }));
    expect(rows).toBeLessThanOrEqual(1500);
  });

  test('as parts of one long message, what is typed is there', async () => {
    const begun = PARAGRAPH.repeat(Math.ceil(LONG_MESSAGE / PARAGRAPH.length));
    let text = begun;
    const rows = await typeMeanwhile('parts of a long message', [message(1, begun)], () => ({
      items: [],
      chunks: Array.from({ length: perBatch }, () => {
        const chunk = { turnId: TURN, message: 1, role: 'agent' as const, offset: text.length, text: WORDS };
        text += WORDS;
        return chunk;
      }),
    }));
    expect(rows).toBe(1);
  });
});

/** Types in the box while batches arrive, and reports how long a person waits for a letter. Returns the rows at the end. */
async function typeMeanwhile(
  what: string,
  begin: ConversationItem[],
  changed: (batch: number) => { items: ConversationItem[]; chunks: LiveChunk[] },
): Promise<number> {
  const harness = await PageHarness.open({ chromium: editorPaths().chromium });
  try {
    await harness.send('state', running());
    await harness.send('begin', page(begin));
    await harness.page.evaluate(`
      globalThis.frames = 0;
      const count = () => { globalThis.frames += 1; requestAnimationFrame(count); };
      requestAnimationFrame(count);
      // From the key to the paint that shows the letter, as the browser measures it; it lists what takes longer than 16 ms.
      globalThis.inputs = [0];
      new PerformanceObserver((list) => {
        for (const { name, duration } of list.getEntries()) if (name === 'input') globalThis.inputs.push(duration);
      }).observe({ type: 'event', durationThreshold: 16 });
    `);
    const box = harness.page.getByRole('textbox');
    await box.focus();
    const begun = performance.now();
    let typed = 0;
    for (let batch = 1; batch <= SECONDS * BATCHES_PER_SECOND; batch += 1) {
      await harness.send('changed', { batch, ...changed(batch) });
      if (batch % 2 === 0) await harness.page.keyboard.type('x');
      typed += batch % 2 === 0 ? 1 : 0;
      const next = begun + (batch * 1000) / BATCHES_PER_SECOND - performance.now();
      if (next > 0) await harness.page.waitForTimeout(next);
    }
    const seconds = (performance.now() - begun) / 1000;
    await harness.drawn();
    const measured: unknown = await harness.page.evaluate(
      `[globalThis.frames, globalThis.inputs, document.querySelectorAll('[data-key]').length]`,
    );
    const [frames, inputs, rows] = MeasuredSchema.parse(measured);
    const events = SECONDS * EVENTS_PER_SECOND;
    const worst = Math.max(...inputs);
    printInSoak(
      `${(events / seconds).toFixed(0)} events/s, ${what}: ${(frames / seconds).toFixed(0)} frames/s, ` +
        `a letter painted after ${worst === 0 ? 'less than 16' : worst.toFixed(0)} ms at most, ${rows} rows`,
    );
    expect(await box.inputValue()).toBe('x'.repeat(typed));
    return rows;
  } finally {
    await harness.close();
  }
}

test.runIf(SOAK)('100,000 events take no more memory than 10,000', { timeout: 600_000 }, async () => {
  const harness = await PageHarness.open({ chromium: editorPaths().chromium });
  try {
    const heap = await heapOf(harness);
    await harness.send('state', running());
    await harness.send('begin', page([prompt(1, 'Tell a long story.')]));
    let sent = 0;
    const send = async (total: number): Promise<number> => {
      for (; sent < total; sent += 500) {
        const changed = Array.from({ length: 500 }, (_, n) => message(10 + sent + n, `Event ${sent + n}`));
        await harness.send('changed', { batch: sent / 500 + 1, items: changed, chunks: [] });
      }
      await harness.drawn();
      return await heap();
    };
    const [few, many] = [await send(10_000), await send(100_000)];
    const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);
    printInSoak(`heap of the page: ${mib(few)} MiB after 10,000 events, ${mib(many)} MiB after 100,000`);
    expect(many).toBeLessThan(1.2 * few + 2 ** 20);
  } finally {
    await harness.close();
  }
});

test.runIf(SOAK)('a page on which nothing happens uses no processor time', { timeout: 120_000 }, async () => {
  const harness = await PageHarness.open({ chromium: editorPaths().chromium });
  try {
    await harness.send('state', state());
    await harness.send('begin', page(items(0, 100), { total: 100 }));
    await harness.drawn();
    const cdp = await harness.page.context().newCDPSession(harness.page);
    await cdp.send('Performance.enable');
    const busyMs = async (): Promise<number> => {
      const { metrics } = await cdp.send('Performance.getMetrics');
      return 1000 * (metrics.find(({ name }) => name === 'TaskDuration')?.value ?? Number.NaN);
    };
    // What follows the first paint is over.
    await harness.page.waitForTimeout(2000);
    const before = await busyMs();
    await harness.page.waitForTimeout(IDLE_MS);
    const share = (100 * ((await busyMs()) - before)) / IDLE_MS;
    printInSoak(`idle page: ${share.toFixed(2)} % of a processor`);
    expect(share).toBeLessThan(1);
  } finally {
    await harness.close();
  }
});

/** Bytes that the page's script holds, after the garbage is collected. */
async function heapOf({ page: shown }: PageHarness): Promise<() => Promise<number>> {
  const cdp = await shown.context().newCDPSession(shown);
  return async () => {
    await cdp.send('HeapProfiler.collectGarbage');
    return (await cdp.send('Runtime.getHeapUsage')).usedSize;
  };
}
