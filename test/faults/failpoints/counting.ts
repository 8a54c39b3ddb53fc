const LINES = 200;
/** What it writes. */
export const NUMBERED_LINES = Array.from({ length: LINES }, (_, at) => `line ${at + 1}\n`).join('');
/** Runs as its prompt says: leaves a mark in the workspace and prints numbered lines. */
const COUNTING = `
def handler(input):
    with open('/workspace/' + input['mark'], 'a') as f: f.write('ran\\n')
    for n in range(1, ${LINES + 1}): print('line', n, flush=True)
    return {'mark': input['mark']}
`;
/** A profile that does it in a handler. */
export const COUNTING_HANDLER = {
  'holdfast.yaml': 'name: handler\nagent: { protocol: handler, entry: agent.py }\npersistence: persistent\n',
  'agent.py': COUNTING,
};
/** The same as a command. */
export const countingScript = (mark: string): string =>
  `echo ran >> /workspace/${mark}; n=1; while [ $n -le ${LINES} ]; do echo line $n; n=$((n+1)); done`;
