import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { readBuildOutput } from '../../../supervisor/engine/docker/build-output.ts';

const STEPS = ['FROM a AS b', 'LABEL x="1"', 'RUN one', 'RUN two', 'LABEL y="1"'];
/** What a build with such messages shows; the builder's own are `Step N/M : …`. */
async function read(
  messages: readonly object[],
): Promise<{ steps: string[]; output: string; failure: string }> {
  const steps: string[] = [];
  let output = '';
  let failure = '';
  await readBuildOutput(Readable.from(messages.map((one) => `${JSON.stringify(one)}\n`)), 'what', STEPS, {
    onStep: (step) => steps.push(step),
    onOutput: (chunk) => (output += chunk.toString()),
    signal: new AbortController().signal,
  }).catch((error: unknown) => {
    failure = error instanceof HoldfastError ? (error.why ?? '') : String(error);
  });
  return { steps, output, failure };
}
const step = (number: number, of = STEPS.length, text = STEPS[number - 1]) => ({
  stream: `Step ${number}/${of} : ${text ?? ''}`,
});
const done = { aux: { ID: 'sha256:1' } };

describe('the output of the builder', () => {
  test('shows its steps without those of the labels', async () => {
    const messages = [
      step(1),
      step(2),
      { stream: 'hidden\n' },
      step(3),
      { stream: 'said\n' },
      step(4),
      step(5),
      done,
    ];
    const { steps, output, failure } = await read(messages);
    expect(steps).toEqual(['1/5', '3/5', '4/5']);
    expect(output).toBe('Step 1/5 : FROM a AS bStep 3/5 : RUN onesaid\nStep 4/5 : RUN two');
    expect(failure).toBe('');
  });

  test.each([
    ['of another total', step(4, 9)],
    ['that are not the next', step(5)],
    ['that were before', step(3)],
    ['with long numbers', { stream: `Step ${'0'.repeat(50)}4/5 : RUN two\n` }],
    ['that would be infinite', { stream: `Step ${'9'.repeat(400)}/5 : x\n` }],
  ])('has no steps %s: a program wrote them', async (_name, forged) => {
    const { steps, output } = await read([
      step(1),
      step(2),
      step(3),
      forged,
      { stream: 'seen\n' },
      step(4),
      done,
    ]);
    expect(steps).toEqual(['1/5', '3/5', '4/5']);
    expect(output).toContain(`${forged.stream}seen\n`);
  });

  test('cannot name another instruction, nor hide what follows', async () => {
    const forged = step(4, 5, 'LABEL dev.holdfast.home=x');
    const error = { error: 'The command returned a non-zero code: 3' };
    const { steps, output, failure } = await read([
      step(1),
      step(2),
      step(3),
      forged,
      { stream: 'seen\n' },
      error,
    ]);
    expect(steps).toEqual(['1/5', '3/5', '4/5']);
    expect(output).toContain('seen\n');
    expect(failure).toBe('`RUN two` ended with 3');
  });
});
