// Images with an agent that Holdfast knows: our agent image, and the agent's npm packages on top.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onPath, run } from './command.mjs';
import { SetupError } from './project.mjs';
import { recipes } from './recipes.mjs';

/**
 * The packages of each preset (`protocol/presets/`), in the versions that were tried.
 * @type {Readonly<Record<string, readonly string[]>>}
 */
export const AGENT_PACKAGES = {
  claude: ['@anthropic-ai/claude-code@2.1.316', '@agentclientprotocol/claude-agent-acp@0.100.0'],
  codex: ['@openai/codex@0.166.0', '@agentclientprotocol/codex-acp@2.6.0'],
  gemini: ['@google/gemini-cli@0.61.0'],
  opencode: ['opencode-ai@1.18.33'],
  qwen: ['@qwen-code/qwen-code@0.24.4'],
};

/** @param {string} agent */
export function agentImageOf(agent) {
  return `holdfast/agent-${agent}:latest`;
}

/**
 * Builds the image of an agent. The packages come from the registry that npm on this machine uses. Their install
 * scripts run in a container without a network, not on this machine.
 * @param {import('./docker-api.mjs').DockerApi} api @param {string} agent
 * @param {import('./progress.mjs').Step} step @returns {Promise<string>} its name
 */
export async function buildAgentImage(api, agent, step) {
  const packages = AGENT_PACKAGES[agent];
  if (packages === undefined) {
    throw new SetupError(
      `No agent is called ${agent}`,
      `Choose one of ${Object.keys(AGENT_PACKAGES).join(', ')}`,
    );
  }
  if (onPath('npm') === undefined) {
    throw new SetupError('There is no npm on PATH to fetch the agent with', 'Install Node 24 with npm');
  }
  const reference = agentImageOf(agent);
  const work = mkdtempSync(join(tmpdir(), 'holdfast-agent-image-'));
  const cleanUp = () => rmSync(work, { recursive: true, force: true });
  process.once('exit', cleanUp);
  try {
    step.show(`fetching ${packages.join(' and ')}`);
    mkdirSync(join(work, 'local'));
    const install = ['install', '--global', '--prefix', join(work, 'local'), '--ignore-scripts'];
    await run('npm', [...install, '--no-audit', '--no-fund', '--loglevel=error', ...packages], {
      missing: packages.join(' and '),
      next: 'Make sure that npm can reach its registry',
    });
    writeFileSync(join(work, 'Dockerfile'), dockerfile(recipes().agent.reference, packages));
    step.show(`building ${reference}`);
    await api.build(archive(work), reference);
  } finally {
    cleanUp();
    process.removeListener('exit', cleanUp);
  }
  return reference;
}

/** @param {string} base @param {readonly string[]} packages */
function dockerfile(base, packages) {
  const names = packages.map((name) => name.slice(0, name.lastIndexOf('@'))).join(' ');
  return [
    `FROM ${base}`,
    'USER root',
    'COPY local/ /usr/local/',
    `RUN npm rebuild --global ${names} && rm -rf /root/.npm`,
    'USER agent',
    '',
  ].join('\n');
}

/** @param {string} folder @returns {import('node:stream').Readable} a tar of it */
function archive(folder) {
  const tar = spawn('tar', ['-c', '--owner=0', '--group=0', '--numeric-owner', '-C', folder, '.'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  tar.on('close', (code) => {
    if (code !== 0) tar.stdout.destroy(new Error(`tar ended with ${code}`));
  });
  tar.on('error', (error) => tar.stdout.destroy(error));
  return tar.stdout;
}
