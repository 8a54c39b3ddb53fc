// npm run pictures: the pictures of the README and of the walkthrough, from what the last run of the e2e suites saw.
import { copyFileSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './setup/project.mjs';

/** Picture → the shot that it is. */
const PICTURES = {
  'begin.png': 'home-first-run-dark.png',
  'begin-light.png': 'home-first-run-light.png',
  'resume.png': 'resume-dark.png',
  'resume-light.png': 'resume-light.png',
  'workspace.png': 'workspace-dark.png',
  'workspace-light.png': 'workspace-light.png',
  'compare.png': 'session-page-restored-dark.png',
  'compare-light.png': 'session-page-restored-light.png',
  'search.png': 'search-dark.png',
  'search-light.png': 'search-light.png',
  'allow.png': 'allow-host-dark.png',
  'allow-light.png': 'allow-host-light.png',
};

const shots = join(ROOT, 'dist/test/shots');
const target = join(ROOT, 'extension/media/pictures');
const missing = Object.values(PICTURES).filter((shot) => !existsSync(join(shots, shot)));
if (missing.length > 0) {
  console.error(`${missing.join(', ')}: not there. Make them: npx vitest run --project e2e`);
  process.exitCode = 1;
} else {
  mkdirSync(target, { recursive: true });
  for (const [picture, shot] of Object.entries(PICTURES))
    copyFileSync(join(shots, shot), join(target, picture));
  console.log(`${Object.keys(PICTURES).length} pictures`);
}
