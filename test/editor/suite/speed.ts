import assert from 'node:assert/strict';
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'mocha';
import * as vscode from 'vscode';
import { connectSupervisor } from '../../../protocol/client/connect.ts';
import { homeFromEnvironment } from '../../../protocol/home.ts';
import { extension, until } from './extension.ts';
import { SESSION, at, inSandbox } from './session.ts';

const FILES = 15;
/** Of the figures that the design asks for: a busy machine is no reason to fail, one that is many times slower is. */
const SLACK = 25;

/** A figure for people: the run prints it. */
function tell(what: string, ms: number): void {
  appendFileSync(join(process.env['TMPDIR'] ?? '', 'figures.txt'), `${what}: ${ms.toFixed(1)} ms\n`);
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}

async function timed(work: () => unknown): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

/** The first suite of its run: it measures the activation. */
export function defineSpeed(): void {
  describe('speed', () => {
    it('of the activation', async () => {
      // A window of a session has activated it for its files; another is measured from here.
      if (extension().isActive) return;
      const ms = await timed(() => extension().activate());
      tell('activation', ms);
      assert.ok(ms < 60 * SLACK, `${ms} ms`);
    });

    describe('of a session', () => {
      before(async function () {
        if (SESSION === '') this.skip();
        await inSandbox(
          `mkdir -p /workspace/speed && cd /workspace/speed && for n in $(seq ${FILES}); do head -c 38000 /dev/urandom | base64 > $n.txt; done`,
        );
      });

      it('of opening 50 KB, beyond the read itself', async () => {
        const home = homeFromEnvironment(process.env);
        const program = { name: 'speed', version: '0', build: '0', builtAt: 0 };
        const { peer, close } = await connectSupervisor({ home, program, start: 'never' });
        const reads: number[] = [];
        const opens: number[] = [];
        try {
          for (let n = 1; n <= FILES; n += 1) {
            const path = `/workspace/speed/${n}.txt`;
            reads.push(await timed(() => peer.callWithBytes('files/read', { session: SESSION, path })));
            opens.push(await timed(() => vscode.workspace.openTextDocument(at(path))));
          }
        } finally {
          close();
        }
        const [read, open] = [median(reads), median(opens)];
        tell('files/read of 50 KB', read);
        tell('opening it in the editor', open);
        assert.ok(open - read < 25 * SLACK, `${open} ms, ${read} of them for the read`);
      });

      it('of an agent’s change on its way to the editor', async () => {
        const marks: number[] = [];
        for (let n = 1; n <= 5; n += 1) {
          const document = await vscode.workspace.openTextDocument(at(`/workspace/speed/${n}.txt`));
          // The sandbox's clock is this machine's.
          await inSandbox(`date +%s%3N > /workspace/speed/${n}.txt`);
          await until('the change', () => document.getText().length < 20);
          // Whole turns of the wait above are counted in: it looks every 25 ms.
          marks.push(Date.now() - Number(document.getText()));
        }
        tell(
          'an agent’s change until it is on screen, with the end of the command that made it',
          median(marks),
        );
        assert.ok(median(marks) < 300 * SLACK, `${median(marks)} ms`);
      });
    });
  });
}
