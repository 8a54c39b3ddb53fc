import hljs from 'highlight.js/lib/core';
import type { LanguageFn } from 'highlight.js';
import bash from 'highlight.js/lib/languages/bash';
import diff from 'highlight.js/lib/languages/diff';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import json from 'highlight.js/lib/languages/json';
import python from 'highlight.js/lib/languages/python';
import rust from 'highlight.js/lib/languages/rust';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import type { Language } from './languages.ts';

const DEFINITIONS: Readonly<Record<Language, LanguageFn>> = {
  ...{ bash, diff, go, ini, json, python, rust, typescript, xml, yaml },
};
for (const [name, definition] of Object.entries(DEFINITIONS)) hljs.registerLanguage(name, definition);

/** Longer code is shown plain: the patterns take time, and an agent may write what takes them longest. */
const MAX_CODE = 20_000;
const MAX_LINE = 2000;

/** Code as HTML: escaped text and `span` elements with classes. Undefined where it is to be shown plain. */
export function highlight(code: string, language: Language | undefined): string | undefined {
  if (language === undefined || code.length > MAX_CODE) return undefined;
  if (code.split('\n').some((line) => line.length > MAX_LINE)) return undefined;
  return hljs.highlight(code, { language, ignoreIllegals: true }).value;
}
