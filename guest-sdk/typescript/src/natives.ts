/** The functions of the module that contains the script. */
interface Natives {
  /** The UTF-8 of the input as a string. */
  text(at: number, length: number): string;
  /**
   * The value of a JSON text; undefined, which is not a JSON value, if a number
   * in it might not be exact. It throws a SyntaxError.
   */
  json(at: number, length: number): unknown;
  /**
   * Finds the frames of the input: the table, of int32, receives the offsets of
   * all kinds, -1 for missing ones, followed by the sizes. The result is false
   * if a frame is truncated.
   */
  read(end: number, table: ArrayBuffer): boolean;
  /**
   * Writes a text to the output, if it fits, and returns the written length.
   * `what` selects the prefix of the text: 0 none, -1 its length, and any other
   * value the header of a frame of that kind.
   */
  put(text: string, at: number, capacity: number, what: number): number;
  /** Sets the input buffer. The caller must keep it alive. */
  input(buffer: ArrayBuffer): void;
  /** Sets the output buffer. The caller must keep it alive. */
  output(buffer: ArrayBuffer): void;
  log(level: number, line: string): void;
  /** Writes to standard error, which the host includes in faults. */
  say(text: string): void;
  serve(call: (number: number, a: never, length: number, type: number) => number): void;
  /** The table that maps the script's lines to the sources. */
  lines(): string;
  /** Runs the engine's jobs, and those that they add, until none is left. */
  jobs(): void;
  /**
   * Writes the FNV-1a hash of 64 bits of a text's UTF-8 to a buffer of 8 bytes,
   * and returns the number of bytes of the text.
   */
  digest(text: string, hash: ArrayBuffer): number;
  /**
   * As digest, with 128 bits: two numbers of 64 bits, of which the upper one
   * comes first.
   */
  digest128(text: string, hash: ArrayBuffer): number;
}

const names = ["text", "json", "read", "put", "input", "output", "log", "say", "serve", "lines", "jobs", "digest", "digest128"] as const;

function take(): Natives {
  const found: Record<string, unknown> = {};
  const global = globalThis as unknown as Record<string, unknown>;
  for (const name of names) {
    found[name] = global["__hostd_" + name];
    delete global["__hostd_" + name];
    if (found[name] === undefined) {
      throw new Error("this SDK and the hostd that builds the module have different versions: missing " + name);
    }
  }
  return found as unknown as Natives;
}

export const natives = take();
