import { TURN_KINDS } from '../turn-kinds.ts';

const DURATION = 'A duration such as 250ms, 30s, 5m, 1h or 30d.';
const SIZE = 'A size such as 512MiB, 5GiB or 1GB.';

/**
 * The descriptions of the fields of `holdfast.yaml`, which editors show, by path. `*` is any item of a list or any
 * alternative of a union. The published schema adds a note to the fields in `UNSUPPORTED_FIELDS`.
 */
export const PROFILE_FIELD_DESCRIPTIONS: Readonly<Record<string, string>> = {
  name: 'Name of the profile: 1 to 40 lower-case letters, digits and dashes, no dash at either end.',
  image: 'Image that the agent runs in. Default: the image that comes with Holdfast.',
  dockerfile:
    'Dockerfile of the project that the image is built from, with the classic builder of the engine. Its RUN steps reach the hosts of `setup.egress`.',
  'dockerfile.*.path': 'The file, relative to the project.',
  'dockerfile.*.from':
    'Images of this machine alone that it may begin with or copy from. Those of a registry need not be listed.',
  'dockerfile.*.args': 'Values of build arguments (ARG).',
  devcontainer:
    'Use the image or the Dockerfile of devcontainer.json; true: at its usual place. Everything else in the file is ignored, and deploy lists it.',
  'devcontainer.*.path': 'The file, relative to the project.',
  'devcontainer.*.from': 'Images of this machine alone that its Dockerfile may begin with or copy from.',
  agent: 'How the agent is run.',
  'agent.*.protocol': Object.entries(TURN_KINDS)
    .map(([kind, { about }]) => `${kind}: ${about}`)
    .join(' '),
  'agent.*.entry': 'File with the handler, relative to the profile: .py, .mjs, .cjs or .js.',
  'agent.*.command': 'The program and its arguments.',
  'agent.*.prompt': 'How the prompt is passed: on stdin (default), or as the last argument.',
  'agent.*.preset':
    'An agent that Holdfast knows: fills in protocol, command, state and caches, which your own fields override.',
  'agent.*.timeout': `Maximum duration of one turn; default 12h. ${DURATION}`,
  'agent.*.state':
    'Paths below HOME that the agent remembers with, such as .claude: they outlive a sandbox and belong to snapshots.',
  'agent.*.caches': 'Paths below HOME, such as .npm, that outlive a sandbox and do not belong to snapshots.',
  'agent.*.config':
    'Your own configuration of the agent: a folder of the project that is laid out as HOME, or ~ for the files of the preset in your own HOME. New sandboxes begin with a copy, without keys and sign-in files.',
  persistence:
    'persistent: workspaces are kept and sessions can be resumed. ephemeral: every run without a session name starts empty.',
  workspace: 'The directory /workspace, which outlives its containers.',
  'workspace.scope':
    'session: every session has its own workspace. profile: all sessions of the profile share one.',
  'workspace.backing':
    'A directory on this machine or a volume of the engine. Default: a directory if the engine can mount it.',
  'workspace.limit': `Maximum size of the workspace. Above it the session refuses new turns. ${SIZE}`,
  'workspace.seed':
    'Directory of the project that a new workspace starts with; default: the whole project. false: it starts empty.',
  'workspace.seed.*.path':
    'Directory of the project that a new workspace starts with; default: the whole project.',
  'workspace.seed.*.git':
    'true: a new workspace includes the git history of the project, which must be the top of its repository. The history ' +
    'contains everything that was ever committed, including secrets.',
  'workspace.ignore': 'Patterns, as in .gitignore, of files that are not copied into a new workspace.',
  'workspace.repository':
    'Repository that the setup clones, and that new workspaces start with instead of the project. Docs: docs/setup.md#a-repository.',
  'workspace.repository.url':
    'URL of the repository: http or https, without user and password, such as https://git.example.com/team/project.git.',
  'workspace.repository.ref': 'Branch, tag or commit; default: the branch that the repository names.',
  'workspace.repository.depth': 'How many commits of history are fetched; default: all.',
  'workspace.repository.secret':
    'Name of the secret that is the password or token. Only the clone has it. Docs: docs/setup.md#a-repository.',
  'workspace.repository.user': 'User name for the secret; default x-access-token.',
  setup:
    'What is installed once, at deploy, before any session starts: it becomes the image of the sandboxes. Docs: docs/setup.md.',
  'setup.packages':
    'Packages to install as root, each a name with an optional version; or auto: those of the preset, and those that package.json, requirements.txt and pyproject.toml name.',
  'setup.packages.*.apt': 'Debian packages, such as ripgrep or git=1:2.47.3-0+deb13u1.',
  'setup.packages.*.npm': 'Global npm packages, such as typescript@5.9.',
  'setup.packages.*.pip': 'Python packages, such as ruff==0.14.',
  'setup.run':
    "Shell commands that run once, as the agent's user in /workspace, after the packages are installed. New sessions begin with what they leave in /workspace and HOME. Docs: docs/setup.md#commands.",
  'setup.resume':
    "Shell commands that run as the agent's user in /workspace when a session gets a new sandbox, before anything else; at most a minute. Docs: docs/setup.md#when-a-session-comes-back.",
  'setup.secrets':
    'Names of secrets that the setup can read: as variables, and as files below /run/secrets. Its image is searched for them. Docs: docs/setup.md#secrets.',
  'setup.egress':
    'The hosts that the setup may reach: npm, pypi or debian for the usual package sources, or a host. Default: the sources of its packages.',
  'setup.egress.*.*.host': 'Host name, with a port if it is not 443.',
  'setup.egress.*.*.quiet': 'The host stays denied, and its denials are not reported.',
  'setup.egress.*.*.tcp': 'The rule carries any protocol, unread.',
  'setup.egress.*.*.ech': 'The rule carries TLS with Encrypted ClientHello.',
  'setup.egress.*.*.methods': 'Allowed HTTP methods.',
  'setup.egress.*.*.path': 'Prefix of the allowed paths.',
  'setup.timeout': `Maximum duration of the setup; default 10m. ${DURATION}`,
  egress: 'The hosts that the agent may reach; default: none.',
  'egress.*.host':
    'A name, an address, or *.NAME for all subdomains; ports 443 and 80, or the one after a colon. ' +
    'host.holdfast.internal:PORT is a port on your own machine.',
  'egress.*.quiet': 'The host stays denied, and its denials are not reported, for example for telemetry.',
  'egress.*.tcp':
    'The rule carries any protocol, unread: for servers that speak first, and whatever is neither HTTP nor TLS.',
  'egress.*.ech':
    'The rule carries TLS with Encrypted ClientHello, in which the name cannot be checked; refused otherwise.',
  'egress.*.methods': 'Allowed HTTP methods.',
  'egress.*.path': 'Prefix of the allowed paths.',
  credentials:
    'Credentials that requests of the agent get on their way out. The sandbox never holds one: it reaches each service on a ' +
    'port of its own loopback. A preset such as anthropic, or a host with a secret of `holdfast secret set`.',
  'credentials.*.*.preset': 'A known service: anthropic, openai, gemini, openrouter, github or github-git.',
  'credentials.*.*.secret':
    'Name of the secret. Default for a preset: the usual variable, such as ANTHROPIC_API_KEY.',
  'credentials.*.*.host': 'The one host that gets the credential, over HTTPS, with a port if it is not 443.',
  'credentials.*.*.as':
    'How it is sent: bearer, basic (the secret is user:password), query (the parameter key), or { header: NAME }, ' +
    '{ basic: USER }, { query: PARAMETER }.',
  'credentials.*.*.as.*.header': 'The header that has the secret as its value.',
  'credentials.*.*.as.*.basic': 'The user, whose password the secret is.',
  'credentials.*.*.as.*.query': 'The parameter of the URL that has the secret as its value.',
  'credentials.*.*.url': 'Variable of the sandbox that gets the base URL.',
  'credentials.*.*.key': 'Variable of the sandbox that gets a placeholder, for programs that want a key.',
  'credentials.*.*.limits': 'What one session may do with it.',
  'credentials.*.*.limits.requests': 'Requests a minute; default 600.',
  'credentials.*.*.limits.bytes': `Bytes an hour, sent and received; default 20GiB. ${SIZE}`,
  'credentials.*.*.limits.concurrent': 'Requests at a time; default 64.',
  env: 'Environment variables of the agent. Not a place for secrets. Names that begin with HOLDFAST_ are reserved.',
  limits: 'Resource limits of a sandbox.',
  'limits.memory': `Memory, at least 32MiB; default 4GiB. ${SIZE}`,
  'limits.cpus':
    'Processors, at least 0.01, fractions allowed; default 2. The sidecar, which reads, searches and stores files, has as many, and at least 1: after a change from its next start on.',
  'limits.pids': 'Processes and threads, at least 16; default 1024.',
  'limits.output': `Maximum output of one turn; default 1GiB. ${SIZE}`,
  'limits.tokens':
    'Tokens that a turn may use, as an agent with `protocol: acp` reports them. Beyond it the agent stops and a person is asked.',
  'limits.cost':
    'What a turn may cost, as an agent with `protocol: acp` reports it, in its currency. Beyond it the agent stops and a person is asked.',
  'limits.home': `Maximum size of HOME; default 4GiB. Above it the session refuses new turns. ${SIZE}`,
  permissions:
    'What an agent that asks may do: ask, allow, or rules. Default: allow where snapshots are required, otherwise ask. A convenience: the sandbox is the boundary.',
  'permissions.*.rules': 'The first rule that matches counts; without one a person is asked.',
  'permissions.*.rules.*.answer': 'What is answered: allow, reject or ask.',
  'permissions.*.rules.*.kind': 'The kind of tool, such as edit or execute.',
  'permissions.*.rules.*.path':
    'All paths of the call match this, below /workspace; * stands for any characters.',
  'permissions.*.rules.*.command': 'The command matches this; * stands for any characters.',
  runtime:
    "Container runtime of the engine. Default: the engine's own. Only runc is tested; gVisor (runsc) is refused.",
  idle: 'What happens to idle sessions.',
  'idle.pause': `A session is paused after this time and keeps its memory; default 5m. ${DURATION}`,
  'idle.stop': `The containers are stopped after this time and the workspace is kept; default 1h. ${DURATION}`,
  'idle.expire': `A session counts as expired after this time; nothing is deleted; default 30d. ${DURATION}`,
  retention: 'How long data is kept.',
  'retention.snapshots': DURATION,
  'retention.events': DURATION,
  'retention.artifacts': DURATION,
  'retention.memory': DURATION,
  snapshots:
    'auto: if the snapshot before a turn takes long or fails, the turn starts without it and says so. required: the turn waits for it, and fails without a complete one.',
  checks:
    'Commands by name that check the work of the agent. `holdfast check` and the editor run them in the sandbox.',
};
