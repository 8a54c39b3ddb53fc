const DURATION = 'A duration such as 250ms, 30s, 5m, 1h or 30d.';
const SIZE = 'A size such as 512MiB, 5GiB or 1GB.';

/**
 * What editors show beside each field of `holdfast.yaml`, by its path; `*` is any item of a list or any of several forms. That deploy
 * refuses a field is added from `UNSUPPORTED_FIELDS`.
 */
export const PROFILE_FIELD_DESCRIPTIONS: Readonly<Record<string, string>> = {
  name: 'Name of the profile: lower-case letters, digits and dashes, 1 to 40, no dash at either end.',
  image: 'Image that the agent runs in. Without one, the image that comes with Holdfast.',
  dockerfile: 'Builds the image.',
  agent: 'How the agent is driven.',
  'agent.*.protocol':
    'handler: a Python or Node function is called with each request. command: a program is run for each.',
  'agent.*.entry': 'File in the folder of the profile that has the handler: .py, .mjs, .cjs or .js.',
  'agent.*.command': 'The program and its arguments.',
  'agent.*.prompt': 'Where the prompt goes: on stdin, or as the last argument.',
  'agent.*.timeout': `How long one turn may take; 12h without it. ${DURATION}`,
  persistence:
    'persistent: the workspace is kept and sessions can be resumed. ephemeral: every run starts empty.',
  workspace: 'The folder /workspace that outlives its containers.',
  'workspace.scope':
    'session: every session has a workspace of its own. profile: all sessions of the profile share one.',
  'workspace.backing':
    'A directory of this machine or a volume of the engine. Without it, whichever the engine allows.',
  'workspace.limit': `The most that it may hold. Above it the session takes no new turn. ${SIZE}`,
  'workspace.seed':
    'Folder of the project that a new workspace starts with, the whole project without it; false: it starts empty.',
  'workspace.seed.*.path':
    'Folder of the project that a new workspace starts with, the whole project without it.',
  'workspace.seed.*.git':
    'true: a new workspace starts with the git history of the project, whose folder is the top of a repository. Everything that ' +
    'was ever committed is in it, secrets too.',
  'workspace.ignore': 'Patterns, as in .gitignore, of what a new workspace starts without.',
  'workspace.repository': 'Repository that a new workspace starts with.',
  'workspace.repository.url': 'Address of the repository.',
  'workspace.repository.ref': 'Branch, tag or commit.',
  setup: 'What runs once before the agent.',
  'setup.run': 'Script that prepares the sandbox.',
  'setup.resume': 'Script that runs when a session comes back.',
  'setup.secrets': 'Names of the secrets that the script sees.',
  'setup.egress': 'What the script may reach.',
  'setup.egress.*.host': 'Host name, with a port if it is not 443.',
  'setup.egress.*.quiet': 'The host stays denied, and denials of it are not reported.',
  'setup.egress.*.methods': 'HTTP methods that are allowed.',
  'setup.egress.*.path': 'Beginning of the paths that are allowed.',
  'setup.timeout': `How long the script may take. ${DURATION}`,
  secrets: 'Names of the secrets that the agent may use.',
  egress: 'What the agent may reach; nothing without it.',
  'egress.*.host':
    'A name, an address, or *.NAME for every name below; ports 443 and 80, or the one behind a colon. ' +
    'host.holdfast.internal:PORT is a port of your own machine.',
  'egress.*.quiet':
    'The host stays denied, and denials of it are not reported: for telemetry that nobody misses.',
  'egress.*.methods': 'HTTP methods that are allowed.',
  'egress.*.path': 'Beginning of the paths that are allowed.',
  env: 'Variables of the agent’s environment. Not a place for secrets. Names that begin with HOLDFAST_ are reserved.',
  limits: 'What a sandbox may use.',
  'limits.memory': `Memory, 32MiB or more; 4GiB without it. ${SIZE}`,
  'limits.cpus': 'Processors, fractions too, 0.01 or more; 2 without it.',
  'limits.pids': 'Processes and threads, 16 or more; 1024 without it.',
  'limits.output': `Output that one turn may write; 1GiB without it. ${SIZE}`,
  runtime: 'Runtime of the engine, such as runsc.',
  idle: 'What happens to a session that nobody uses.',
  'idle.pause': `After this it is paused, memory kept; 5m without it. ${DURATION}`,
  'idle.stop': `After this its containers end, the workspace stays; 1h without it. ${DURATION}`,
  'idle.expire': `After this it counts as expired; nothing is deleted; 30d without it. ${DURATION}`,
  retention: 'How long things are kept.',
  'retention.snapshots': DURATION,
  'retention.events': DURATION,
  'retention.artifacts': DURATION,
  'retention.memory': DURATION,
  snapshots:
    'auto: a turn begins without its snapshot where that takes long or cannot be taken, and says so. required: it waits, and fails without a complete one.',
  checks: 'Commands by name that tell whether the work is good; the editor runs them in the sandbox.',
};
