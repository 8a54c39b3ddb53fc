import type { Entry } from '../../protocol/snapshot-tree.ts';
import type { GraphRow } from '../../protocol/snapshot-lanes.ts';

/** Pixels between two lanes, from the left to the first one, and from the top of a row to its node. */
const PITCH = 14;
const LEFT = 10;
const NODE = 18;
const RADIUS = 4.5;
/** Colours of lanes in the style sheet. */
const COLOURS = 6;

const x = (lane: number): number => LEFT + lane * PITCH;
const colour = (lane: number): string => `lane${lane % COLOURS}`;

/** Pixels that the drawing of `lanes` takes. */
export function widthOf(lanes: number): number {
  return x(lanes - 1) + LEFT;
}

interface Props {
  readonly row: GraphRow;
  readonly lanes: number;
  readonly kind: Entry['kind'];
  readonly isPinned: boolean;
  /** The line goes on to rows that are not read yet. */
  readonly isOpen: boolean;
}

/** The lines and the node of one row, which is as high as its text. What they say is in the text too. */
export function Lanes({ row, lanes, kind, isPinned, isOpen }: Props) {
  const { lane, fromAbove, toBelow, passing, joining } = row;
  const at = x(lane);
  return (
    <svg class="lanes" width={widthOf(lanes)} aria-hidden="true" focusable="false">
      {passing.map((one) => (
        <line key={one} class={colour(one)} x1={x(one)} x2={x(one)} y1="0" y2="100%" />
      ))}
      {joining.map((one) => (
        <path key={one} class={colour(one)} d={`M${x(one)} 0C${x(one)} ${NODE - 4} ${at} 4 ${at} ${NODE}`} />
      ))}
      {fromAbove && <line class={colour(lane)} x1={at} x2={at} y1="0" y2={NODE} />}
      {(toBelow || isOpen) && (
        <line class={`${colour(lane)}${isOpen ? ' open' : ''}`} x1={at} x2={at} y1={NODE} y2="100%" />
      )}
      {kind === 'fork' || kind === 'origin' ? (
        <rect class={`node ${colour(lane)}`} x={at - 4} y={NODE - 4} width="8" height="8" />
      ) : (
        <circle class={`node ${kind} ${colour(lane)}`} cx={at} cy={NODE} r={RADIUS} />
      )}
      {isPinned && <circle class={`ring ${colour(lane)}`} cx={at} cy={NODE} r={RADIUS + 3} />}
    </svg>
  );
}
