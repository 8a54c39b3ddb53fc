import { Disposable, QuickInputButtonLocation, ThemeIcon, commands, window } from 'vscode';
import type { InputBox, QuickInputButton } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatOptions, parseGlobs } from './search-query.ts';
import type { SearchOptions, SearchToggle } from './search-query.ts';

/** This context key is set while the box is open. It enables the keys of the toggles. */
const CONTEXT = 'holdfast.searchInput';
const MAX_PATTERN_CHARACTERS = 10_000;

interface ToggleButton extends QuickInputButton {
  readonly option: SearchToggle;
  readonly toggle: { checked: boolean };
}
interface GlobsButton extends QuickInputButton {
  readonly globs: 'include' | 'exclude';
}

const TOGGLES = [
  ['matchCase', 'case-sensitive', 'Match Case (Alt+C)'],
  ['wholeWord', 'whole-word', 'Match Whole Word (Alt+W)'],
  ['regex', 'regex', 'Use Regular Expression (Alt+R)'],
] as const;
const INCLUDE: GlobsButton = {
  globs: 'include',
  iconPath: new ThemeIcon('filter'),
  tooltip: 'Files to Include…',
  location: QuickInputButtonLocation.Title,
};
const EXCLUDE: GlobsButton = {
  globs: 'exclude',
  iconPath: new ThemeIcon('exclude'),
  tooltip: 'Files to Exclude…',
  location: QuickInputButtonLocation.Title,
};

interface Input {
  readonly pattern: string;
  readonly options: SearchOptions;
}
interface Answer {
  readonly done: boolean;
  /** The person wants to enter these globs first. */
  readonly globs?: GlobsButton['globs'];
}

/** The input box for a search, with the options as buttons and keys. */
export class SearchInput {
  #box: InputBox | undefined;
  #options: SearchOptions | undefined;

  /** Undefined where the person cancels. */
  async ask(title: string, start: Input): Promise<Input | undefined> {
    let { pattern, options } = start;
    for (;;) {
      const answer = await this.#pattern(title, pattern, options);
      ({ pattern, options } = answer);
      if (answer.done) return pattern === '' ? undefined : { pattern, options };
      if (answer.globs === undefined) return undefined;
      const globs = await askGlobs(title, answer.globs, options[answer.globs]);
      if (globs !== undefined) options = { ...options, [answer.globs]: globs };
    }
  }

  /** Toggles an option while the box is open. False where it is not open. */
  toggle(option: SearchToggle): boolean {
    const box = this.#box;
    if (box === undefined || this.#options === undefined) return false;
    this.#options = { ...this.#options, [option]: !this.#options[option] };
    showOptions(box, this.#options);
    return true;
  }

  #pattern(title: string, pattern: string, options: SearchOptions): Promise<Input & Answer> {
    const box = window.createInputBox();
    box.title = title;
    box.value = pattern;
    box.valueSelection = [0, pattern.length];
    box.placeholder = 'Search';
    this.#box = box;
    this.#options = options;
    showOptions(box, options);
    void commands.executeCommand('setContext', CONTEXT, true);
    return new Promise((resolve) => {
      const end = (answer: Answer): void => {
        resolve({ ...answer, pattern: box.value, options: this.#options ?? options });
        listeners.dispose();
        box.dispose();
        if (this.#box !== box) return;
        this.#box = undefined;
        void commands.executeCommand('setContext', CONTEXT, false);
      };
      const listeners = Disposable.from(
        box.onDidChangeValue((value) => {
          box.validationMessage =
            value.length > MAX_PATTERN_CHARACTERS
              ? `Enter at most ${MAX_PATTERN_CHARACTERS.toLocaleString('en-US')} characters`
              : '';
        }),
        box.onDidTriggerButton((button) => {
          if (isToggle(button)) {
            this.#options = { ...(this.#options ?? options), [button.option]: button.toggle.checked };
            showOptions(box, this.#options);
          } else if ('globs' in button) {
            end({ done: false, globs: button === INCLUDE ? 'include' : 'exclude' });
          }
        }),
        box.onDidAccept(() => {
          if (box.value.length <= MAX_PATTERN_CHARACTERS) end({ done: true });
        }),
        box.onDidHide(() => end({ done: false })),
      );
      box.show();
    });
  }
}

function showOptions(box: InputBox, options: SearchOptions): void {
  const toggles = TOGGLES.map(([option, icon, tooltip]): ToggleButton => ({
    option,
    iconPath: new ThemeIcon(icon),
    tooltip,
    location: QuickInputButtonLocation.Input,
    toggle: { checked: options[option] },
  }));
  box.buttons = [INCLUDE, EXCLUDE, ...toggles];
  const text = formatOptions(options);
  box.prompt =
    text === '' ? 'Press Enter to search all files of the workspace' : `Press Enter to search with: ${text}`;
}

function isToggle(button: QuickInputButton): button is ToggleButton {
  return 'option' in button;
}

function askGlobs(title: string, which: 'include' | 'exclude', value: string): Thenable<string | undefined> {
  return window.showInputBox({
    title: `${title}: files to ${which}`,
    value,
    placeHolder: 'src, *.ts, ./docs/**',
    prompt: `Names or globs, separated by commas. Empty: ${which === 'include' ? 'all files' : 'no files'}`,
    validateInput: (text) => {
      try {
        parseGlobs(text);
        return undefined;
      } catch (error) {
        return HoldfastError.from(error).sentence;
      }
    },
  });
}
