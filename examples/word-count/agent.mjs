// Counts the words of every text it has been given, in Node: a total in memory, and one in /workspace that survives.
import { open, readFile, rename } from 'node:fs/promises';

const PATH = '/workspace/words.json';
let sinceStart = 0;

export async function handler(request) {
  const words = (request.text ?? '').split(/\s+/).filter((word) => word !== '').length;
  sinceStart += words;
  const total = (await stored()) + words;
  const file = await open(`${PATH}.new`, 'w');
  try {
    await file.writeFile(JSON.stringify({ total }));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(`${PATH}.new`, PATH);
  return { words, sinceStart, total };
}

async function stored() {
  try {
    return JSON.parse(await readFile(PATH, 'utf8')).total;
  } catch (error) {
    if (error.code === 'ENOENT') return 0;
    throw error;
  }
}
