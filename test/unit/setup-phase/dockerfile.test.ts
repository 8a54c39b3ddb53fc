import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import {
  imagesOf,
  requireDevcontainerImage,
  resolveImages,
} from '../../../supervisor/setup/dockerfile/base-images.ts';
import { wantedPaths } from '../../../supervisor/setup/dockerfile/context.ts';
import { parseDockerfile, type ParseOptions } from '../../../supervisor/setup/dockerfile/parse.ts';
import { renderDockerfile } from '../../../supervisor/setup/dockerfile/render.ts';
import type { ImageFacts } from '../../../supervisor/engine/port.ts';
import { soakCount } from '../../setup/run-length.ts';

const parse = (text: string, options?: ParseOptions) => parseDockerfile(Buffer.from(text), options);
/** What the engine gets. */
function rendered(text: string, options?: ParseOptions): string[] {
  return renderDockerfile(parse(text, options), {
    imageId: (reference) => `id(${reference})`,
    buildLabels: { step: '1' },
    imageLabels: { image: '1' },
  })
    .trimEnd()
    .split('\n');
}
/** The instructions of a single stage, without what is ours. */
const inside = (text: string): string[] => rendered(`FROM base\n${text}`).slice(2, -1);
function refusal(text: string | Uint8Array, options?: ParseOptions): string {
  try {
    parseDockerfile(typeof text === 'string' ? Buffer.from(text) : text, options);
  } catch (error) {
    if (error instanceof HoldfastError) return `${error.code}: ${error.why ?? ''}`;
    throw error;
  }
  return 'accepted';
}

describe('lines', () => {
  test.each([
    ['RUN a', ['RUN a']],
    ['run a', ['RUN a']],
    ['  RUN   a  b  ', ['RUN a  b']],
    ['RUN a \\\n  b', ['RUN a   b']],
    ['RUN a \\  \n  # comment\n\n\t# another\n  b', ['RUN a   b']],
    ['RUN a\\\r\n b\r\n', ['RUN a b']],
    ['# comment\nRUN a # no comment', ['RUN a # no comment']],
    ['RUN echo "a \\\n  FROM evil"', ['RUN echo "a   FROM evil"']],
    ['RUN ["a", "b c"]', ['RUN ["a","b c"]']],
    ['RUN [ -f x ] && y', ['RUN [ -f x ] && y']],
    ['RUN ["a", 1]', ['RUN ["a", 1]']],
    ['RUN cat <<< word; echo $((1<<2))', ['RUN cat <<< word; echo $((1<<2))']],
    [
      'WORKDIR /x\nUSER me\nENV A=b C="d e"\nENV old style',
      ['WORKDIR /x', 'USER me', 'ENV A=b C="d e"', 'ENV old style'],
    ],
    ['ARG A\nARG B="c d"', ['ARG A', 'ARG B="c d"']],
    ['SHELL ["/bin/bash","-c"]', ['SHELL ["/bin/bash","-c"]']],
    ['COPY a b c/', ['COPY ["a","b","c/"]']],
    ['COPY --chown=1:2 ["a b", "c"]', ['COPY --chown=1:2 ["a b","c"]']],
    ['ADD a b', ['COPY ["a","b"]']],
    [
      'CMD x\nENTRYPOINT ["y"]\nLABEL dev.holdfast.role=agent\nVOLUME /x\nEXPOSE 1\nHEALTHCHECK NONE\nSTOPSIGNAL 9\nMAINTAINER me\nRUN a',
      ['RUN a'],
    ],
  ])('%j', (text, expected) => {
    expect(inside(text)).toEqual(expected);
  });

  test.each([
    ['', 'it has no FROM'],
    ['RUN a', 'before the first FROM'],
    ['FROM a\nRUN', 'needs an argument'],
    ['FROM a\nRUN a \\', 'nothing follows'],
    ['FROM a\nRUN a \\\n# comment\n\n', 'nothing follows'],
    ['FROM a\n<script>', 'does not begin with an instruction'],
    ['FROM a\nINCLUDE x', 'no instruction INCLUDE'],
    ['FROM a\nRUN a\0b', 'control character'],
    ['FROM a\nRUN a\rFROM b', 'control character'],
    ['FROM a\nRUN a\u2028FROM b', 'control character'],
    ['FROM a\nSHELL bash', 'needs a list'],
    ['FROM a\nARG A B', 'ARG is not of the form'],
    ['FROM a\nARG 1A=b', 'ARG is not of the form'],
    ['FROM a\nONBUILD RUN x', 'ONBUILD'],
    ['FROM a\nCOPY onlyone', 'needs a source and a target'],
    ['FROM a\nCOPY ["a", ""]', 'needs a source and a target'],
    [`FROM a\n${'RUN a\n'.repeat(301)}`, 'more than 300'],
    [`FROM a\nRUN ${'a'.repeat(300_000)}`, 'more than 256 KiB'],
  ])('%j is refused', (text, why) => {
    expect(refusal(text)).toContain(`profile_invalid: line`);
    expect(refusal(text)).toContain(why);
  });

  test('that are not UTF-8 are refused', () => {
    expect(refusal(Buffer.from([0x46, 0x52, 0xff]))).toContain('not UTF-8');
  });

  test('never become more than one of the engine’s, whatever they contain', () => {
    const pieces = [
      'RUN x',
      '\\',
      '\n',
      ' ',
      '#',
      '"',
      "'",
      '[',
      ']',
      '<<EOF',
      '$A',
      '\t',
      'FROM y',
      '\r\n',
      'ADD http://h/ /',
      ',',
      'COPY a b',
    ];
    let seed = 42;
    const next = (): number => (seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31);
    let accepted = 0;
    for (let round = 0; round < soakCount(2000, 100_000); round += 1) {
      const text = `FROM base\nRUN begin\n${Array.from({ length: next() % 12 }, () => pieces[next() % pieces.length]).join('')}`;
      if (refusal(text) !== 'accepted') continue;
      accepted += 1;
      for (const line of rendered(text)) {
        expect(line).toMatch(
          /^(FROM id\((base|y)\) AS holdfast-stage-\d|LABEL (step|image)="1"|RUN .*|COPY \[.*\])$/,
        );
        expect(line).not.toMatch(/\\$/);
      }
    }
    expect(accepted).toBeGreaterThan(200);
  });
});

describe('directives', () => {
  test.each([
    '# syntax=docker/dockerfile:1',
    '#syntax=evil.example/frontend',
    '# SYNTAX = x',
    '# check=skip=all\n# syntax=x',
    '  # syntax=x',
  ])('%j is refused', (line) => {
    expect(refusal(`${line}\nFROM a`)).toContain('another builder');
  });
  test('for another escape character are refused, and a comment later is a comment', () => {
    expect(refusal('# escape=`\nFROM a')).toContain('Windows');
    expect(refusal('# escape=\\\nFROM a')).toBe('accepted');
    expect(refusal('# a comment\n# syntax=x\nFROM a')).toBe('accepted');
    expect(refusal('FROM a\n# syntax=x\nRUN b')).toBe('accepted');
  });
});

describe('what needs BuildKit, or would get past the network of the setup', () => {
  test.each([
    ['RUN --mount=type=secret,id=x cat /run/secrets/x', 'needs BuildKit'],
    ['RUN --network=host curl x', 'needs BuildKit'],
    ['RUN --security=insecure x', 'needs BuildKit'],
    ['RUN <<EOF\necho\nEOF', 'here-document'],
    ['RUN cat <<-"END" > x', 'here-document'],
    ['COPY <<EOF /x\na\nEOF', 'here-document'],
    ['COPY --chmod=755 a b', '--chmod'],
    ['COPY --link a b', '--link'],
    ['COPY --exclude=x a b', '--exclude'],
    ['ADD --checksum=sha256:x https://x/ /', '--checksum'],
    ['ADD --keep-git-dir=true a b', '--keep-git-dir'],
    ['ADD --from=base a b', '--from'],
    ['ADD http://127.0.0.1:2375/ /x', 'would be fetched by the engine'],
    ['ADD HTTPS://example.com/x /x', 'would be fetched by the engine'],
    ['ADD ["a", "https://example.com/x", "/x/"]', 'would be fetched by the engine'],
    ['ADD git@github.com:a/b.git /x', 'would be fetched by the engine'],
    ['ADD github.com/a/b /x', 'would be fetched by the engine'],
    ['ADD $URL /x', 'may be an address'],
    ['ADD x.tar.gz /x', 'unpack an archive'],
    ['ADD bombs/x.TXZ /x', 'unpack an archive'],
    ['COPY --from=$X a b', '--from has a variable'],
    ['COPY --chown=a;b a b', '--chown'],
    ['COPY --from=sha256:0123456789abcdef a b', 'by its id'],
    ['COPY --from=0123456789ab a b', 'by its id'],
    ['COPY --from=../x a b', 'does not name an image'],
  ])('%j is refused', (text, why) => {
    expect(refusal(`FROM a\n${text}`)).toContain(why);
  });

  test.each([
    ['FROM --platform=linux/arm64 a', 'has an option'],
    ['FROM sha256:0123456789abcdef', 'by its id'],
    ['FROM 0123456789abcdef0123', 'by its id'],
    ['FROM a b', 'not of the form'],
    ['FROM a AS', 'not of the form'],
    ['FROM a AS a b', 'not of the form'],
    ['FROM a AS 1x', 'cannot be the name'],
    ['FROM a AS x\nFROM b AS X', 'two stages'],
    ['FROM $MISSING', 'does not name an image'],
    ['FROM ${A:?x}', 'not supported'],
    ['FROM ${A#x}', 'not supported'],
    ['FROM a\\b', 'not supported'],
    ['FROM a;b', 'does not name an image'],
    ['ARG A="x y"\nFROM $A', 'does not name an image'],
    ['FROM a\nFROM b\nCOPY --from=7 x y', 'no stage 7'],
    ['FROM a\nCOPY --from=0 x y', 'no stage 0'],
  ])('%j is refused', (text, why) => {
    expect(refusal(text)).toContain(why);
  });
});

describe('sizes', () => {
  const doubling = (keyword: string): string =>
    Array.from({ length: 40 }, (_, at) => `${keyword} A${at + 1}=$A${at}$A${at}`).join('\n');

  test.each([
    ['a global value that doubles', `ARG A0=${'x'.repeat(1000)}\n${doubling('ARG')}\nFROM a`, 'line 4: '],
    ['a long global value', `ARG A=${'x'.repeat(4097)}\nFROM a`, 'line 1: a value'],
    ['a long reference', `ARG A=${'x'.repeat(4000)}\nFROM $A$A`, 'line 2: a value'],
    ['ENV that doubles', `FROM a\nENV A0=xxxxxxxx\n${doubling('ENV')}`, 'may have more than 65536'],
    ['ARG that doubles', `FROM a\nARG A0=xxxxxxxx\n${doubling('ARG')}`, 'may have more than 65536'],
    [
      'ENV that doubles itself',
      `FROM a\nENV A=x\n${'ENV A=$A${A}\n'.repeat(40)}`,
      'may have more than 65536',
    ],
    ['ENV in the old form', `FROM a\nENV A x\n${'ENV A $A$A\n'.repeat(40)}`, 'may have more than 65536'],
    [
      'ENV passed on to stages',
      `FROM a AS s0\nENV A=x\n${Array.from({ length: 40 }, (_, at) => `FROM s${at} AS s${at + 1}\nENV A=$A$A`).join('\n')}`,
      'may have more than 65536',
    ],
    ['unknown variables', `FROM a\nWORKDIR /${'$A'.repeat(17)}`, 'may have more than 65536'],
    ['nested variables', `FROM a\nUSER \${A:-${'${B:-'.repeat(17)}${'}'.repeat(17)}}`, 'more than 65536'],
    ['sources with variables', `FROM a\nCOPY ${'$A '.repeat(17)} x`, 'may have more than 65536'],
    [
      'many variables',
      `FROM a\nENV B=${'x'.repeat(60_000)}\nENV ${Array.from({ length: 9 }, (_, at) => `C${at}=$B`).join(' ')}`,
      'line 3: ',
    ],
    ['a value that is replaced in', 'FROM a\nENV A=${B/x/yy}', 'form that is not supported'],
    ['a value that is cut', 'FROM a\nENV A=${B%%x} C=${B#x}', 'form that is not supported'],
    ['names with variables', 'FROM a\nENV $A=b', 'not of the form'],
    ['names in quotes', 'FROM a\nENV "A"=b', 'not of the form'],
    ['an open quote', 'FROM a\nENV A="b', 'not of the form'],
    [`long lines`, `FROM a\nRUN ${'a\\\n'.repeat(66_000)}b`, 'line 2: it has more than 64 Ki'],
    ['many sources', `FROM a\n${`COPY ${'a '.repeat(501)}x/\n`.repeat(2)}`, 'more than 1000 sources'],
  ])('of %s are refused', (_name, text, why) => {
    expect(refusal(text)).toContain('profile_invalid: line');
    expect(refusal(text)).toContain(why);
  });

  test('of arguments that the profile gives are refused too', () => {
    const args = { A: 'x'.repeat(5000) };
    expect(refusal('ARG A\nFROM a', { args })).toContain('line 1: a value');
    expect(refusal('FROM a\nARG A', { args })).toContain('line 2: a value');
  });

  test('of usual variables are accepted', () => {
    expect(
      refusal(
        `ARG V=1.2\nFROM node:$V AS base\nARG V\nARG E="a b"\nENV V=$V E='x y' F="a \\" b" G=a\\ b\n${'ENV PATH=/opt/${V}/bin:$PATH\n'.repeat(10)}FROM base\nWORKDIR $HOME/x\nENV OLD $PATH it's\nRUN echo \${X##y}`,
      ),
    ).toBe('accepted');
  });

  test('of a rendered list stay bounded', () => {
    expect(() => rendered(`FROM a\nCOPY ["${'\\u0001'.repeat(9000)}", "b"]`)).not.toThrow();
    expect(() => rendered(`FROM a\nCOPY ${'"'.repeat(40_000)} b`)).toThrow(HoldfastError);
  });

  test('need no more than a moment to be read', () => {
    const begun = performance.now();
    refusal(`#a=${' '.repeat(250_000)}x`);
    refusal(`#a=${' x'.repeat(100_000)}`);
    refusal(`FROM a\nRUN ${'a\\\n'.repeat(80_000)}b`);
    expect(performance.now() - begun).toBeLessThan(1000);
  });
});

describe('stages', () => {
  test('have the names of their place, and images their ids', () => {
    expect(
      rendered(
        'ARG V=1\nARG N="node"\nFROM ${N}:${V} AS Build\nRUN a\nFROM build as more\nFROM ${X:-debian}:12\nCOPY --from=BUILD /a /b\nCOPY --from=1 /a /b\nCOPY --from=alpine:3 /a /b\nCOPY c d',
      ),
    ).toEqual([
      'ARG V=1',
      'ARG N="node"',
      'FROM id(node:1) AS holdfast-stage-0',
      'LABEL step="1"',
      'RUN a',
      'FROM holdfast-stage-0 AS holdfast-stage-1',
      'LABEL step="1"',
      'FROM id(debian:12) AS holdfast-stage-2',
      'LABEL step="1"',
      'COPY --from=holdfast-stage-0 ["/a","/b"]',
      'COPY --from=holdfast-stage-1 ["/a","/b"]',
      'COPY --from=id(alpine:3) ["/a","/b"]',
      'COPY ["c","d"]',
      'LABEL image="1"',
    ]);
  });

  test('end with the target, and arguments of the profile go before those of the file', () => {
    const text = 'ARG V=1\nFROM a:$V AS one\nFROM b AS two\nRUN x';
    expect(rendered(text, { target: 'One', args: { V: '2' } })).toEqual([
      'ARG V=1',
      'FROM id(a:2) AS holdfast-stage-0',
      'LABEL step="1"',
      'LABEL image="1"',
    ]);
    expect(refusal(text, { target: 'three' })).toContain('no stage three');
    expect(refusal('ARG constructor\nFROM a:$constructor')).toContain('does not name an image');
  });

  test('name what they take from the context', () => {
    const wanted = (text: string) => wantedPaths(parse(`FROM a AS x\n${text}`));
    expect(wanted('RUN a')).toEqual([]);
    expect(wanted('COPY ./a /b/c/ ../../d e/')).toEqual(['a', 'b/c', 'd']);
    expect(wanted('COPY src/*.json x/\nCOPY a/$V/b y')).toEqual(['a', 'src']);
    expect(wanted('FROM b\nCOPY --from=x . /all\nCOPY one two')).toEqual(['one']);
    expect(wanted('COPY . /x')).toBeNull();
    expect(wanted('COPY .. /x')).toBeNull();
    expect(wanted('COPY *.json /x')).toBeNull();
    expect(wanted('COPY $A /x')).toBeNull();
  });
});

describe('images', () => {
  const FACTS: ImageFacts = {
    id: 'sha256:1',
    bytes: 5,
    isPrepared: false,
    isPublished: true,
    hasTriggers: false,
    hasVolumes: false,
  };
  const known: Readonly<Record<string, ImageFacts>> = {
    'debian:12': FACTS,
    'holdfast/agent:latest': { ...FACTS, isPublished: false },
    'mine:1': { ...FACTS, isPublished: false },
    'hf-x/prepared:setup-1': { ...FACTS, isPublished: false, isPrepared: true },
    'node:onbuild': { ...FACTS, hasTriggers: true },
    'postgres:17': { ...FACTS, hasVolumes: true },
    abc: { ...FACTS, isPublished: false },
  };
  const resolve = (text: string, listed: readonly string[] = []): Promise<string> =>
    answer(async (images, pull) =>
      [...(await resolveImages(images, parse(text), listed, pull)).keys()].join(),
    );
  const named = (reference: string, listed: readonly string[] = []): Promise<string> =>
    answer(async (images, pull) => {
      await requireDevcontainerImage(images, reference, listed, pull);
      return 'accepted';
    });
  const answer = async (
    run: (
      images: Parameters<typeof resolveImages>[0],
      pull: Parameters<typeof resolveImages>[3],
    ) => Promise<string>,
  ): Promise<string> => {
    const pulled: string[] = [];
    const images = {
      facts: (reference: string) =>
        Promise.resolve(
          known[reference] ?? (pulled.includes(reference) && reference === 'remote:1' ? FACTS : null),
        ),
      pull: (reference: string) => {
        pulled.push(reference);
        return Promise.resolve();
      },
    };
    const pull = { report: () => undefined, signal: new AbortController().signal };
    return await run(images, pull).catch(
      (error: unknown) => `${(error as HoldfastError).code}: ${(error as HoldfastError).why ?? ''}`,
    );
  };

  test('of registries and our own are allowed; those of this machine have to be listed', async () => {
    expect(await resolve('FROM debian:12\nCOPY --from=remote:1 a b')).toBe('debian:12,remote:1');
    expect(await resolve('FROM holdfast/agent:latest')).toBe('holdfast/agent:latest');
    expect(await resolve('FROM mine:1')).toMatch(/profile_invalid: line 1: .*this machine alone/);
    expect(await resolve('FROM debian:12\n\nCOPY --from=mine:1 a b')).toMatch(/line 3: mine:1/);
    expect(await resolve('FROM mine:1', ['mine:1'])).toBe('mine:1');
  });

  test('of other profiles, with triggers, or that are nowhere are refused, listed or not', async () => {
    const other = 'hf-x/prepared:setup-1';
    expect(await resolve(`FROM ${other}`, [other])).toContain('not_supported');
    expect(await resolve(`FROM debian:12\nCOPY --from=${other} a b`, [other])).toContain('not_supported');
    expect(await resolve('FROM node:onbuild')).toContain('ONBUILD');
    expect(await resolve('FROM nowhere:1')).toContain('no image nowhere:1');
    // It is published nowhere: a registry may have anything under that name.
    expect(await resolve('FROM holdfast/agent-claude')).toContain('published nowhere');
  });

  test('with volumes are refused, because nothing bounds what is written there', async () => {
    expect(await resolve('FROM postgres:17')).toMatch(/profile_invalid: line 1: .*VOLUME/);
  });

  test('that a devcontainer.json names have the same rules', async () => {
    expect(await named('debian:12')).toBe('accepted');
    expect(await named('remote:1')).toBe('accepted');
    expect(await named('postgres:17')).toBe('accepted');
    expect(await named('mine:1')).toMatch(/profile_invalid: .*this machine alone/);
    expect(await named('mine:1', ['mine:1'])).toBe('accepted');
    expect(await named('hf-x/prepared:setup-1', ['hf-x/prepared:setup-1'])).toContain(
      'not_supported: it was',
    );
    expect(await named('holdfast/agent-claude')).toContain('published nowhere');
    for (const id of ['sha256:0123', 'abc', '0123456789abcdef'])
      expect(await named(id, [id])).toContain('may be the id');
  });

  test('are each named once', () => {
    expect(
      imagesOf(parse('FROM a AS x\nFROM a\nCOPY --from=b 1 2\nCOPY --from=x 1 2\nFROM scratch')),
    ).toMatchObject([
      { reference: 'a', line: 1 },
      { reference: 'b', line: 3 },
    ]);
  });
});
