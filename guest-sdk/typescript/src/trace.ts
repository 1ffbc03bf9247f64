import { natives } from "./natives.js";

/** A fault whose text says all that people need to know. */
export class Fault extends Error {}

/** The source file and line where an error was thrown; "" if it is not known. */
export function place(thrown: unknown): string {
  if (!(thrown instanceof Error)) return "";
  const first = /([^\s(]+:\d+)\)?$/.exec(stack(thrown.stack ?? "").split("\n", 1)[0]!);
  return first ? first[1]! : "";
}

/** What was thrown, and where: "TypeError: not a function [index.ts:7]". */
export function summary(thrown: unknown): string {
  const at = place(thrown);
  return (thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown)) + (at === "" ? "" : ` [${at}]`);
}

/**
 * Writes an error for people: its message, and the source lines of its stack.
 */
export function describe(thrown: unknown): void {
  for (let e = thrown, depth = 0; depth < 4; depth++) {
    const because = depth > 0 ? "caused by " : "";
    if (e instanceof Fault) {
      natives.say(`hostd: ${e.message}\n`);
      return;
    }
    if (!(e instanceof Error)) {
      natives.say(because + String(e) + "\n");
      return;
    }
    // First the part that needs little memory and time, because there may be
    // little left.
    natives.say(`${because}${e.name}: ${e.message}\n`);
    natives.say(stack(e.stack ?? ""));
    if (e.cause === undefined) return;
    e = e.cause;
  }
}

function stack(text: string): string {
  const table = natives.lines().split("\n");
  const files = JSON.parse(table[0]!) as string[];
  let out = "";
  for (const frame of text.split("\n")) {
    const found = /^(.*)\bapp\.js:(\d+):(\d+)(.*)$/.exec(frame);
    if (!found) continue;
    const from = origin(table[Number(found[2])] ?? "", Number(found[3]) - 1, files);
    if (from !== "") out += found[1] + from + found[4] + "\n";
  }
  return out;
}

// Each line of the table lists the positions where the source line changes:
// COLUMN,FILE,LINE. The SDK's own files have no name.
function origin(line: string, column: number, files: string[]): string {
  let best = "";
  for (const place of line.split(" ")) {
    const [from, file, number] = place.split(",");
    if (number === undefined || Number(from) > column && best !== "") break;
    best = files[Number(file)] === "" ? "" : files[Number(file)] + ":" + number;
  }
  return best;
}
