// How long conversations take to open and to search: node bench/conversations.ts [--json] [--rounds N]
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { EventEntry } from '../protocol/events.ts';
import { ConversationReader } from '../supervisor/conversation/conversation-reader.ts';
import { ConversationSearch } from '../supervisor/conversation/conversation-search.ts';
import { Conversations } from '../supervisor/conversation/conversations.ts';
import { Handover } from '../supervisor/conversation/handover.ts';
import { SessionMemory } from '../supervisor/conversation/session-memory.ts';
import type { Log } from '../supervisor/base/log.ts';
import { Artifacts } from '../supervisor/history/artifacts.ts';
import { Contents } from '../supervisor/history/contents.ts';
import { EventLog } from '../supervisor/history/event-log.ts';
import { openDatabase } from '../supervisor/store/database.ts';
import { Home } from '../supervisor/store/home.ts';
import { Operations } from '../supervisor/store/operations.ts';
import { Sessions } from '../supervisor/store/sessions.ts';
import { Report, interleave, median, p99 } from './measure.ts';
import { benchSession } from './sessions.ts';

const TURN = 'turn-aaaaaaaaaaaaaaaa';
const EVENTS = 100_000;
/** Of the conversation that is told to an agent without memory. */
const HANDED_OVER = 10_000;
const SESSIONS = 1000;
const MESSAGES = 20;
const PAGE = 100;
/** Words that occur in every session, and one that occurs in one. */
const WORDS = 'the agent reads a file runs every test and writes what it found into notes'.split(' ');
const RARE = 'quokka';

const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 31 : Number(process.argv[wanted + 1]);
const silent: Log = {
  debug: () => {},
  info: () => {},
  warn: console.warn,
  error: console.error,
  child: () => silent,
};

const directory = mkdtempSync(join(tmpdir(), 'holdfast-bench-'));
const home = Home.open(join(directory, 'home'));
const database = openDatabase(home);
try {
  const report = new Report('conversations', { grep: version('grep'), tail: version('tail') });
  const [events, sessions] = [new EventLog(database), new Sessions(database)];
  const contents = new Contents(database, new Artifacts(home));
  const conversations = new Conversations({ database, events, contents, log: silent });
  const reader = new ConversationReader({ conversations, events, contents });
  const search = new ConversationSearch({ conversations, sessions });
  const transcripts = join(directory, 'transcripts');
  mkdirSync(transcripts);

  /** Stores messages of one session, and a line for each in its transcript, as agents keep theirs. */
  const talk = (n: number, many: number): { readonly sessionId: string; readonly transcript: string } => {
    const row = benchSession(n);
    const lines: string[] = [];
    database.transaction(() => {
      sessions.insert(row);
      for (let first = 0; first < many; first += 400) {
        const page = Array.from({ length: Math.min(400, many - first) }, (_, at): EventEntry => {
          const text = sentence(n, first + at);
          const data = { turnId: TURN, message: first + at + 1, role: 'agent' } as const;
          const content = contents.insert(row.id, Buffer.from(text));
          lines.push(JSON.stringify({ type: 'agent.message', ...data, text }));
          return { type: 'agent.message', data: { ...data, content } };
        });
        events.append(row.id, page);
      }
    });
    const transcript = join(transcripts, `${row.id}.jsonl`);
    writeFileSync(transcript, `${lines.join('\n')}\n`);
    return { sessionId: row.id, transcript };
  };

  const { sessionId, transcript } = talk(0, EVENTS);
  const opened = await interleave(rounds, {
    ours: async () => {
      const start = performance.now();
      const { items } = await reader.page(sessionId, { limit: PAGE });
      if (items.length !== PAGE) throw new Error('the page is not whole');
      return performance.now() - start;
    },
    peer: () => {
      const text = execFileSync('tail', ['-n', String(PAGE), transcript], { encoding: 'utf8' });
      if (
        text
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line) as object).length !== PAGE
      )
        throw new Error('the page is not whole');
      return undefined;
    },
  });
  report.add({
    name: `opening a conversation of ${EVENTS.toLocaleString('en')} events at its end`,
    ours: median(opened.ours),
    unit: 'ms',
    p99: p99(opened.ours),
    peer: { name: '`tail` of a transcript, and parsing it', value: median(opened.peer) },
    target: { atMost: 50 },
    samples: rounds,
  });
  const middle = await interleave(rounds, {
    ours: async () => {
      const start = performance.now();
      const { items } = await reader.page(sessionId, { before: '50000.50000', limit: PAGE });
      if (items.length !== PAGE) throw new Error('the page is not whole');
      return performance.now() - start;
    },
  });
  report.add({ name: 'a page in its middle', ours: median(middle.ours), unit: 'ms', p99: p99(middle.ours) });

  const memory = new SessionMemory({ database, events, contents, operations: new Operations(database) });
  const handover = new Handover({ conversations, reader, memory });
  const forgotten = talk(SESSIONS + 1, HANDED_OVER);
  const told = await interleave(rounds, {
    ours: async () => {
      const start = performance.now();
      if (await handover.mustStartOver(forgotten.sessionId)) throw new Error('it did not start over');
      const text = await handover.textFor(forgotten.sessionId);
      if ((text?.length ?? 0) < 10_000) throw new Error('the text is not whole');
      return performance.now() - start;
    },
    peer: () => {
      const lines = readFileSync(forgotten.transcript, 'utf8').trim().split('\n');
      if (lines.map((line) => JSON.parse(line) as object).length !== HANDED_OVER)
        throw new Error('the transcript is not whole');
      return undefined;
    },
  });
  report.add({
    name: `the history as text for an agent without memory, of ${HANDED_OVER.toLocaleString('en')} events`,
    ours: median(told.ours),
    unit: 'ms',
    p99: p99(told.ours),
    peer: { name: 'reading and parsing its whole transcript', value: median(told.peer) },
    target: { atMost: 1000 },
    samples: rounds,
  });

  rmSync(forgotten.transcript);
  for (let n = 1; n <= SESSIONS; n += 1) talk(n, MESSAGES);
  for (const [name, text, found] of [
    ['a word of one session', RARE, 1],
    ['a word of every session', 'notes', 20],
    ['two words', 'test notes', 20],
  ] as const) {
    const looked = await interleave(rounds, {
      ours: async () => {
        const start = performance.now();
        const { results } = await search.search({ text, sessionId: null, limit: 20 });
        if (results.length !== found) throw new Error(`${results.length} places instead of ${found}`);
        return performance.now() - start;
      },
      peer: () => {
        execFileSync('grep', ['-rlw', text.split(' ')[0] ?? '', transcripts], { encoding: 'utf8' });
        return undefined;
      },
    });
    report.add({
      name: `finding ${name} in ${SESSIONS.toLocaleString('en')} sessions`,
      ours: median(looked.ours),
      unit: 'ms',
      p99: p99(looked.ours),
      peer: { name: '`grep` over their transcripts', value: median(looked.peer) },
      target: { atMost: 100 },
      samples: rounds,
    });
  }
  if (!report.finish()) process.exitCode = 1;
} finally {
  database.close();
  rmSync(directory, { recursive: true, force: true });
}

function sentence(session: number, nth: number): string {
  const rare = session === SESSIONS && nth === 0 ? ` ${RARE}` : '';
  return `${nth}: ${WORDS.map((word, at) => WORDS[(at + nth * 7 + session) % WORDS.length] ?? word).join(' ')}${rare}`;
}

function version(program: string): string {
  return execFileSync(program, ['--version'], { encoding: 'utf8' }).split('\n')[0] ?? '';
}
