import { HoldfastError } from '../../../protocol/errors.ts';
import type { Dockerfile, Instruction, Source } from './parse.ts';

const LONGEST_LINE = 65_536;

export interface RenderOptions {
  /** The id of an image, by how the Dockerfile names it. */
  readonly imageId: (reference: string) => string;
  /** Labels of all that the build makes on the way: what is left of it is found by them. */
  readonly buildLabels: Readonly<Record<string, string>>;
  /** Labels of the image. */
  readonly imageLabels: Readonly<Record<string, string>>;
}

/**
 * The Dockerfile that the engine gets: one line for each instruction, images by their ids, stages by their numbers, and no comments or
 * directives, so that the engine cannot read it in another way.
 */
export function renderDockerfile(
  { globals, stages }: Dockerfile,
  { imageId, buildLabels, imageLabels }: RenderOptions,
): string {
  const image = (source: Source): string => {
    switch (source.kind) {
      case 'scratch':
        return 'scratch';
      case 'stage':
        return stageName(source.index);
      case 'image':
        return imageId(source.reference);
    }
  };
  const lines = [...globals];
  for (const [index, { base, instructions }] of stages.entries()) {
    lines.push(`FROM ${image(base)} AS ${stageName(index)}`, ...labelLine(buildLabels));
    for (const instruction of instructions) lines.push(lineOf(instruction, image));
  }
  lines.push(...labelLine(imageLabels));
  for (const line of lines) {
    // A list of words may be longer than how it was written.
    if (line.length > LONGEST_LINE)
      throw new HoldfastError('profile_invalid', 'The Dockerfile cannot be built', {
        why: `an instruction has more than ${LONGEST_LINE / 1024} Ki characters: ${line.slice(0, 80)}`,
        next: 'copy a script and run it, or copy folders',
      });
    if (/[\n\r\0]/.test(line) || /\\[ \t]*$/.test(line))
      throw new HoldfastError('internal', 'The Dockerfile could not be written for the engine');
  }
  return `${lines.join('\n')}\n`;
}

/** No image has such a name, because a tag would be added to it. */
function stageName(index: number): string {
  return `holdfast-stage-${index}`;
}

function labelLine(labels: Readonly<Record<string, string>>): string[] {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  return pairs.length === 0 ? [] : [`LABEL ${pairs.join(' ')}`];
}

function lineOf(instruction: Instruction, image: (source: Source) => string): string {
  if (instruction.kind === 'plain') return instruction.text;
  const { from, chown, sources, target } = instruction;
  const options = [
    ...(from === null ? [] : [`--from=${image(from)}`]),
    ...(chown === null ? [] : [`--chown=${chown}`]),
  ];
  return ['COPY', ...options, JSON.stringify([...sources, target])].join(' ');
}
