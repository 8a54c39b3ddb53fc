// What a person sees while things are set up: a spinner and bars on a terminal, plain lines elsewhere.
const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const MEGABYTE = 1024 * 1024;

/** What a running step may say about itself. */
export class Step {
  /** @param {(text: string) => void} show @param {(text: string) => void} note */
  constructor(show, note) {
    this.show = show;
    /** A line that stays on the screen. */
    this.note = note;
  }

  /** @param {number} done @param {number} of bytes */
  bytes(done, of) {
    if (of === 0) return;
    const filled = Math.round((done / of) * 20);
    this.show(
      `${'█'.repeat(filled)}${'░'.repeat(20 - filled)} ${Math.round(done / MEGABYTE)}/${Math.round(of / MEGABYTE)} MB`,
    );
  }
}

export class Progress {
  /** @param {NodeJS.WriteStream} out */
  constructor(out = process.stderr) {
    this.out = out;
    this.live = out.isTTY;
  }

  /** @param {string} text */
  line(text) {
    this.out.write(`${text}\n`);
  }

  /**
   * Runs one step and says how it went and how long it took.
   * @template T
   * @param {string} title what is being done
   * @param {(step: Step) => Promise<T>} work
   * @param {(result: T) => string} [summary] what came of it, in a few words
   * @returns {Promise<T>}
   */
  async step(title, work, summary = () => '') {
    const started = Date.now();
    let detail = '';
    let frame = 0;
    let shown = '';
    const seconds = () => ((Date.now() - started) / 1000).toFixed(1);
    const draw = () => {
      const text = `${FRAMES[frame++ % FRAMES.length] ?? ''} ${title}${detail === '' ? '' : `: ${detail}`} ${seconds()} s`;
      const width = Math.max(20, (this.out.columns || 80) - 1);
      this.out.write(`\r\x1b[2K${text.slice(0, width)}`);
    };
    const timer = this.live ? setInterval(draw, 100) : undefined;
    const step = new Step(
      (text) => {
        detail = text;
        // Without a terminal a bar would be thousands of lines: say only when a new kind of work begins.
        const kind = text.replace(/[█░\d./ ]+(MB)?/g, '');
        if (!this.live && kind !== shown && kind !== '') this.line(`  … ${text}`);
        shown = kind;
      },
      (text) => this.line(this.live ? `\r\x1b[2K  ${text}` : `  ${text}`),
    );
    if (!this.live) this.line(`- ${title}`);
    try {
      const result = await work(step);
      const said = summary(result);
      if (timer !== undefined) {
        clearInterval(timer);
        this.out.write('\r\x1b[2K');
      }
      this.line(`✓ ${title}${said === '' ? '' : `: ${said}`} (${seconds()} s)`);
      return result;
    } catch (error) {
      if (timer !== undefined) this.out.write('\r\x1b[2K');
      this.line(`✗ ${title} (${seconds()} s)`);
      throw error;
    } finally {
      clearInterval(timer);
    }
  }
}
