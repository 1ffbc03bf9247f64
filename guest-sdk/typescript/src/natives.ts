/** What the module that the script is part of can do. */
interface Natives {
  /** The UTF-8 of the input as a string. */
  text(at: number, length: number): string;
  /**
   * The value of a JSON text of the input; undefined, which no text has, where it
   * may have a number that is not exact then. It throws a SyntaxError.
   */
  json(at: number, length: number): unknown;
  /**
   * Finds the frames of the input: the table, of int32, gets the places of all
   * kinds, -1 for what is not there, and the sizes behind. It is false where a
   * frame is cut off.
   */
  read(end: number, table: ArrayBuffer): boolean;
  /**
   * Writes a text into the output, if it fits, and answers how much that is.
   * Before the text comes nothing for 0, its length for -1, and the header of a
   * frame for another kind.
   */
  put(text: string, at: number, capacity: number, what: number): number;
  /** Says where the input is written to. It must be kept. */
  input(buffer: ArrayBuffer): void;
  /** Says where the output is taken from. It must be kept. */
  output(buffer: ArrayBuffer): void;
  log(level: number, line: string): void;
  /** Writes to standard error, where faults take their text from. */
  say(text: string): void;
  serve(call: (number: number, a: never, length: number, type: number) => number): void;
  /** Where the lines of the script come from. */
  lines(): string;
}

const names = ["text", "json", "read", "put", "input", "output", "log", "say", "serve", "lines"] as const;

function take(): Natives {
  const found: Record<string, unknown> = {};
  const global = globalThis as unknown as Record<string, unknown>;
  for (const name of names) {
    found[name] = global["__hostd_" + name];
    delete global["__hostd_" + name];
    if (found[name] === undefined) {
      throw new Error("this SDK and the hostd that builds the module are not of one version: there is no " + name);
    }
  }
  return found as unknown as Natives;
}

export const natives = take();
