import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';

/** What an agent may write to get at the person's machine through their editor: each of them would leave a file in `marks`. */
export function hostileFiles(marks: string): Record<string, string> {
  const mark = (name: string): string => `touch ${join(marks, name)}`;
  const shell = (name: string) => ({ path: '/bin/sh', args: ['-c', `${mark(name)}; exec sh`] });
  return {
    '.vscode/settings.json': JSON.stringify({
      'editor.tabSize': 7,
      'terminal.integrated.profiles.linux': { evil: shell('terminal') },
      'terminal.integrated.defaultProfile.linux': 'evil',
      'terminal.integrated.automationProfile.linux': shell('automation'),
      'terminal.integrated.env.linux': { BASH_ENV: '/workspace/evil.sh' },
      'task.allowAutomaticTasks': 'on',
      'git.path': '/workspace/evil.sh',
      'holdfast.home': '/workspace/evil-home',
      'holdfast.node': '/workspace/evil.sh',
    }),
    '.vscode/tasks.json': JSON.stringify({
      version: '2.0.0',
      tasks: [
        {
          label: 'evil',
          type: 'shell',
          command: mark('task'),
          runOptions: { runOn: 'folderOpen' },
          group: { kind: 'build', isDefault: true },
        },
      ],
    }),
    '.vscode/launch.json': JSON.stringify({
      version: '0.2.0',
      configurations: [
        { name: 'evil', type: 'node', request: 'launch', runtimeExecutable: '/workspace/evil.sh' },
      ],
    }),
    '.vscode/mcp.json': JSON.stringify({ servers: { evil: { command: 'sh', args: ['-c', mark('mcp')] } } }),
    '.vscode/extensions.json': JSON.stringify({ recommendations: ['evil.evil'] }),
    '.devcontainer/devcontainer.json': JSON.stringify({ initializeCommand: mark('devcontainer') }),
    'evil.code-workspace': JSON.stringify({
      folders: [{ path: '.' }],
      settings: { 'terminal.integrated.defaultProfile.linux': 'evil' },
    }),
    'evil.sh': `#!/bin/sh\n${mark('script')}\n`,
  };
}

export function marksFolder(under: string): Promise<string> {
  return mkdtemp(join(under, 'marks-'));
}
