import { natives } from "./natives.js";

// JavaScript's JSON functions change integers that no double can represent.
// Here these are bigints: they are parsed as bigints, and written with all
// their digits. An integer is a number if JavaScript writes that number with
// the same digits, so a script's numbers stay numbers.
//
// The engine's own parser and serializer do the work. Only a text with many
// digits in a row is parsed by way of marked strings: an unpaired surrogate,
// which the host allows in no payload, followed by digits.

const mark = "\udfff";
const token = /"[^"\\]*(?:\\[^][^"\\]*)*"|-?\d[\d.eE+-]*/g;
const manyDigits = /[\d.]{16}/;
const written = /"\\udfff(-?\d+)"/g;
const half = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\[^u]/g;

let writing = false;
let digits = false; // the written text has a bigint beyond 2^53

/**
 * Whether the text that write has returned last must be parsed with read
 * instead of JSON.parse.
 */
export function isExact(): boolean {
  return digits;
}

/** The JSON text of a value; undefined if it has none in JSON. */
export function write(value: unknown): string | undefined {
  writing = true;
  digits = false;
  let text: string | undefined;
  try {
    text = JSON.stringify(value) as string | undefined;
  } finally {
    writing = false;
  }
  if (text === undefined) return undefined;
  if (digits) text = text.replace(written, "$1");
  // An unpaired surrogate becomes U+FFFD, as everywhere in UTF-8.
  if (text.includes("\\ud")) text = text.replace(half, (found, alone) => alone === undefined ? found : "\ufffd");
  return text;
}

/**
 * The value of a text that write has returned; exact is the result of isExact
 * after that call.
 */
export function read(text: string, exact: boolean): unknown {
  return exact ? parse(text) : JSON.parse(text);
}

/** A JSON text, which is written as it is. */
export class Raw {
  constructor(readonly text: string) {}
}

/**
 * The value of any JSON text. It throws a SyntaxError. The engine's parser may
 * not have the digits of a number in a text that has many in a row.
 */
export function value(text: string): unknown {
  return manyDigits.test(text) ? parse(text) : JSON.parse(text);
}

/** The JSON text of a string, as the Go SDK writes it. */
export function quote(text: string): string {
  return write(text)!.replace(/[\u2028\u2029]/g, (c) => c === "\u2028" ? "\\u2028" : "\\u2029");
}

/** A JSON text without white space between its tokens. */
export function compact(text: string): string {
  if (!/[ \t\n\r]/.test(text)) return text;
  return text.replace(/"[^"\\]*(?:\\[^][^"\\]*)*"|[ \t\n\r]+/g, (part) => part[0] === '"' ? part : "");
}

/** The value of a JSON text in the input. It throws a SyntaxError. */
export function input(at: number, length: number): unknown {
  const value = natives.json(at, length);
  return value === undefined ? parse(natives.text(at, length)) : value;
}

function parse(text: string): unknown {
  let found = false;
  const marked = text.replace(token, (part) => {
    if (part[0] === '"') return part;
    const number = Number(part);
    if (!Number.isFinite(number)) throw new SyntaxError("a number is beyond the range of a double");
    if (Number.isSafeInteger(number) || !Number.isInteger(number) || Math.abs(number) >= 1e20) return part;
    const integer = integerOf(part);
    if (integer === undefined || String(number) === integer) return part;
    found = true;
    return `"\\udfff${integer}"`;
  });
  const value = JSON.parse(marked) as unknown;
  return found ? revived(value) : value;
}

// The digits of an integer below 1e20, which may be written with a fraction or
// an exponent; undefined if it is not an integer.
function integerOf(part: string): string | undefined {
  const [, sign, whole, fraction = "", exponent = "0"] = /^(-?)(0|[1-9]\d*)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(part) ?? [];
  if (whole === undefined) return undefined;
  const all = whole + fraction;
  const end = whole.length + Number(exponent); // position of the decimal point
  if (/[1-9]/.test(all.slice(Math.max(end, 0)))) return undefined;
  return String(BigInt(sign + (all.slice(0, end) + "0".repeat(Math.max(0, end - all.length)))));
}

// Replaces marked strings by bigints. It uses a list instead of recursion,
// because values may be nested more deeply than calls.
function revived(root: unknown): unknown {
  const top = { root };
  const left: any[] = [top];
  for (let each = left.pop(); each !== undefined; each = left.pop()) {
    for (const name of Object.keys(each)) {
      const value = each[name] as unknown;
      if (typeof value === "string") {
        if (value.startsWith(mark)) each[name] = BigInt(value.slice(1));
      } else if (typeof value === "object" && value !== null) {
        left.push(value);
      }
    }
  }
  return top.root;
}

/**
 * Makes JSON.stringify accept a bigint. The SDK writes all its digits; in a
 * script's own JSON it is a number if that is exact, and otherwise a string.
 */
export function installBigInt(): void {
  Object.defineProperty(BigInt.prototype, "toJSON", {
    value: function (this: bigint): number | string {
      const number = Number(this);
      if (Number.isSafeInteger(number)) return number;
      if (!writing) return String(this);
      digits = true;
      return mark + String(this);
    },
  });
}
