import { natives } from "./natives.js";

// JSON as JavaScript has it changes integers that no double holds. Here they are
// bigints: read as such, and written with all their digits. An integer is a
// number if JavaScript writes the number as the same digits, so what a script has
// as a number stays one.
//
// The engine's own reader and writer do the work. Only a text with many digits in
// a row is read by way of marked strings: half of a surrogate pair, which the
// host lets into no payload, and digits.

const mark = "\udfff";
const token = /"[^"\\]*(?:\\[^][^"\\]*)*"|-?\d[\d.eE+-]*/g;
const written = /"\\udfff(-?\d+)"/g;
const half = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\[^u]/g;

let writing = false;
let digits = false; // the text that is written has a bigint beyond 2^53

/** Whether the text that write has made last needs read, and not JSON.parse. */
export function isExact(): boolean {
  return digits;
}

/** The JSON text of a value; undefined where JSON has none. */
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
  // What is left of it is U+FFFD, as everywhere where there is UTF-8.
  if (text.includes("\\ud")) text = text.replace(half, (found, alone) => alone === undefined ? found : "\ufffd");
  return text;
}

/** The value of a text that write has made; exact says what isExact said then. */
export function read(text: string, exact: boolean): unknown {
  return exact ? parse(text) : JSON.parse(text);
}

/** The value of a JSON text of the input. It throws a SyntaxError. */
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

// The digits of an integer below 1e20, which may be written with a fraction or an
// exponent; undefined for what is none.
function integerOf(part: string): string | undefined {
  const [, sign, whole, fraction = "", exponent = "0"] = /^(-?)(0|[1-9]\d*)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(part) ?? [];
  if (whole === undefined) return undefined;
  const all = whole + fraction;
  const end = whole.length + Number(exponent); // where the point is
  if (/[1-9]/.test(all.slice(Math.max(end, 0)))) return undefined;
  return String(BigInt(sign + (all.slice(0, end) + "0".repeat(Math.max(0, end - all.length)))));
}

// Puts bigints in the place of marked strings, with a list of what is left to do:
// values may be deeper in each other than calls may.
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
 * Has JSON take a bigint. What the SDK writes has all its digits; what a script
 * makes of it by itself is a number where that is exact, and a text beyond.
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
