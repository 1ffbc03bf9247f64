// JSON encoding and decoding, by rules that all SDKs share: the text is
// compact, with members in the order of their declaration. In the input,
// missing and null members get their default, unknown members are skipped, and
// integers may be numbers or strings of digits.

/** A class that is encoded and decoded as a JSON object. */
export abstract class Json {
  /** Lists each member once, as `this.n = f.i64("n", this.n)`. */
  abstract fields(f: Fields): void;
}

/** No payload: it is neither read nor written. */
export class None extends Json {
  fields(f: Fields): void {}
}

// Output: a growing byte buffer. Globals hold it, so that it stays alive while
// the host reads it.

let out = new StaticArray<u8>(1024);
let written: i32 = 0;

export function outAt(): usize {
  return changetype<usize>(out);
}

export function outLength(): i32 {
  return written;
}

export function setOutLength(length: i32): void {
  written = length;
}

/** Reserves that many bytes, and returns their address. */
export function grow(bytes: i32): usize {
  const need = written + bytes;
  if (need > out.length) {
    const more = new StaticArray<u8>(max(need, out.length * 2));
    memory.copy(changetype<usize>(more), changetype<usize>(out), written);
    out = more;
  }
  const at = changetype<usize>(out) + written;
  written = need;
  return at;
}

export function putByte(byte: i32): void {
  store<u8>(grow(1), <u8>byte);
}

/** Writes a text as UTF-8; unpaired surrogates become U+FFFD. */
export function putUTF8(text: string): void {
  for (let i = 0, n = text.length; i < n; i++) {
    let c: i32 = text.charCodeAt(i);
    if (c >= 0xd800 && c < 0xe000) {
      const low: i32 = c < 0xdc00 && i + 1 < n ? text.charCodeAt(i + 1) : 0;
      if (low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        i++;
      } else {
        c = 0xfffd;
      }
    }
    if (c < 0x80) {
      putByte(c);
    } else if (c < 0x800) {
      putByte(0xc0 | (c >> 6));
      putByte(0x80 | (c & 63));
    } else {
      if (c < 0x10000) {
        putByte(0xe0 | (c >> 12));
      } else {
        putByte(0xf0 | (c >> 18));
        putByte(0x80 | ((c >> 12) & 63));
      }
      putByte(0x80 | ((c >> 6) & 63));
      putByte(0x80 | (c & 63));
    }
  }
}

/** Writes a text as a JSON string. */
export function putString(text: string): void {
  let plain = true;
  for (let i = 0, n = text.length; i < n && plain; i++) {
    const c = text.charCodeAt(i);
    plain = c >= 0x20 && c != 0x22 && c != 0x5c;
  }
  putByte(0x22);
  putUTF8(plain ? text : escaped(text));
  putByte(0x22);
}

function escaped(text: string): string {
  let made = "";
  for (let i = 0, n = text.length; i < n; i++) {
    const c = text.charCodeAt(i);
    if (c == 0x22) made += '\\"';
    else if (c == 0x5c) made += "\\\\";
    else if (c >= 0x20) made += text.charAt(i);
    else if (c == 0x0a) made += "\\n";
    else if (c == 0x0d) made += "\\r";
    else if (c == 0x09) made += "\\t";
    else if (c == 0x08) made += "\\b";
    else if (c == 0x0c) made += "\\f";
    else made += "\\u00" + (c < 16 ? "0" : "") + c.toString(16);
  }
  return made;
}

export function putObject(value: Json): void {
  putByte(0x7b);
  const f = new Fields(Mode.Write, null);
  value.fields(f);
  putByte(0x7d);
}

// Reading

export enum Kind { Null, Bool, Number, Text, List, Object }

/** A parsed value. */
export class Value {
  kind: Kind = Kind.Null;
  /** The string, or the digits of a number. */
  text: string = "";
  truth: bool = false;
  names: string[] | null = null;
  values: Value[] | null = null;

  /** The member with a name, the last one if there are several. */
  member(name: string): Value | null {
    const names = this.names;
    if (!names) return null;
    for (let i = names.length - 1; i >= 0; i--) if (names[i] == name) return this.values![i];
    return null;
  }
}

const DEPTH = 200;

// The position in the text, and why it is invalid.
let at: usize = 0;
let end: usize = 0;
let fault: string = "";

/** Why the last text is invalid. */
export function lastFault(): string {
  return fault;
}

function wrong(reason: string): Value | null {
  if (!fault.length) fault = reason;
  return null;
}

/** Parses the single value of a text; null if there is none. */
export function parse(from: usize, length: i32): Value | null {
  at = from;
  end = from + length;
  fault = "";
  const value = readValue(0);
  if (value && peek() >= 0) return wrong("there is more than one value");
  return value;
}

function peek(): i32 {
  for (; at < end; at++) {
    const c = load<u8>(at);
    if (c != 0x20 && c != 0x0a && c != 0x0d && c != 0x09) return c;
  }
  return -1;
}

function take(byte: i32): bool {
  if (peek() != byte) return false;
  at++;
  return true;
}

function word(text: string): bool {
  const n = text.length;
  if (end - at < <usize>n) return false;
  for (let i = 0; i < n; i++) if (load<u8>(at + i) != text.charCodeAt(i)) return false;
  at += n;
  return true;
}

function readValue(depth: i32): Value | null {
  const value = new Value();
  const c = peek();
  if (depth > DEPTH) return wrong("values are nested too deep");
  if (c == 0x22) {
    value.kind = Kind.Text;
    return readString(value) ? value : null;
  }
  if (c == 0x7b || c == 0x5b) {
    value.kind = c == 0x7b ? Kind.Object : Kind.List;
    at++;
    return readElements(value, depth) ? value : null;
  }
  if (c == 0x2d || (c >= 0x30 && c <= 0x39)) {
    value.kind = Kind.Number;
    const start = at;
    if (!skipNumber()) return wrong("invalid number");
    value.text = String.UTF8.decodeUnsafe(start, at - start);
    return value;
  }
  if (c == 0x6e && word("null")) return value;
  value.kind = Kind.Bool;
  if (c == 0x66 && word("false")) return value;
  value.truth = true;
  if (c == 0x74 && word("true")) return value;
  return wrong("expected a value");
}

function readElements(into: Value, depth: i32): bool {
  const object = into.kind == Kind.Object, closing = object ? 0x7d : 0x5d;
  const names: string[] = [], values: Value[] = [];
  into.names = names;
  into.values = values;
  if (take(closing)) return true;
  while (true) {
    if (object) {
      const name = new Value();
      if (peek() != 0x22 || !readString(name) || !take(0x3a)) {
        wrong("expected a member");
        return false;
      }
      names.push(name.text);
    }
    const value = readValue(depth + 1);
    if (!value) return false;
    values.push(value);
    if (take(closing)) return true;
    if (!take(0x2c)) {
      wrong("expected a comma or an end");
      return false;
    }
  }
}

function readString(into: Value): bool {
  const start = ++at;
  let text = "", from = start;
  while (at < end) {
    const c = load<u8>(at++);
    if (c == 0x22) {
      into.text = text + String.UTF8.decodeUnsafe(from, at - 1 - from);
      return true;
    }
    if (c < 0x20) break;
    if (c != 0x5c) continue;
    text += String.UTF8.decodeUnsafe(from, at - 1 - from);
    if (at >= end) break;
    const e = load<u8>(at++);
    if (e == 0x75) {
      const code = hex();
      if (code < 0) break;
      text += String.fromCharCode(code);
    } else if (e == 0x22 || e == 0x5c || e == 0x2f) text += String.fromCharCode(e);
    else if (e == 0x6e) text += "\n";
    else if (e == 0x72) text += "\r";
    else if (e == 0x74) text += "\t";
    else if (e == 0x62) text += "\b";
    else if (e == 0x66) text += "\f";
    else break;
    from = at;
  }
  wrong("a string has no end or contains an invalid character");
  return false;
}

function hex(): i32 {
  let code = 0;
  for (let i = 0; i < 4; i++, at++) {
    if (at >= end) return -1;
    const c: i32 = load<u8>(at), small = c | 0x20;
    if (c >= 0x30 && c <= 0x39) code = (code << 4) | (c - 0x30);
    else if (small >= 0x61 && small <= 0x66) code = (code << 4) | (small - 0x57);
    else return -1;
  }
  return code;
}

function digits(): i32 {
  const start = at;
  while (at < end && load<u8>(at) - 0x30 <= 9) at++;
  return <i32>(at - start);
}

function skipNumber(): bool {
  if (load<u8>(at) == 0x2d) at++;
  const zero = at < end && load<u8>(at) == 0x30, n = digits();
  if (n == 0 || (zero && n > 1)) return false;
  if (at < end && load<u8>(at) == 0x2e) {
    at++;
    if (digits() == 0) return false;
  }
  if (at < end && (load<u8>(at) | 0x20) == 0x65) {
    at++;
    if (at < end && (load<u8>(at) == 0x2b || load<u8>(at) == 0x2d)) at++;
    if (digits() == 0) return false;
  }
  return true;
}

// Results of the last call of magnitude.
let negative = false;
let amount: u64 = 0;

/** Reads only digits; false if there are none or they do not fit. */
function magnitude(text: string): bool {
  const n = text.length;
  negative = n > 0 && text.charCodeAt(0) == 0x2d;
  const first = negative ? 1 : 0;
  amount = 0;
  if (n == first || (text.charCodeAt(first) == 0x30 && n > first + 1)) return false;
  for (let i = first; i < n; i++) {
    const c = text.charCodeAt(i), digit: u64 = <u64>(c - 0x30);
    if (c < 0x30 || c > 0x39 || amount > (u64.MAX_VALUE - digit) / 10) return false;
    amount = amount * 10 + digit;
  }
  return true;
}

// Fields

export enum Mode { Write, Read, Schema }

/** Visits the members of an object, to write, read or describe them. */
export class Fields {
  private first: bool = true;
  private required: string = "";
  /** Why a value does not match. */
  invalid: string = "";

  constructor(private mode: Mode, private from: Value | null) {}

  /** When writing: writes the name of a member. */
  private name(name: string): void {
    if (!this.first) putByte(0x2c);
    this.first = false;
    putString(name);
    putByte(0x3a);
  }

  /** When describing: writes a member of a schema. */
  private describe(name: string, schema: string): void {
    this.required += (this.first ? "" : ",") + '"' + name + '"';
    this.name(name);
    putUTF8(schema);
  }

  /** When reading: the value of a member; null if it is missing. */
  private given(name: string): Value | null {
    const from = this.from, value = from ? from.member(name) : null;
    return value && value.kind != Kind.Null ? value : null;
  }

  private no(name: string, what: string): void {
    if (!this.invalid.length) this.invalid = name + " is not " + what;
  }

  requiredNames(): string {
    return this.required;
  }

  private integer(name: string, value: Value): bool {
    if ((value.kind == Kind.Number || value.kind == Kind.Text) && magnitude(value.text)) return true;
    this.no(name, "an integer");
    return false;
  }

  i64(name: string, value: i64): i64 {
    if (this.mode == Mode.Write) {
      this.name(name);
      putUTF8(value.toString());
      return value;
    }
    if (this.mode == Mode.Schema) {
      this.describe(name, '{"type":["integer","string"],"format":"int64"}');
      return value;
    }
    const given = this.given(name);
    if (!given || !this.integer(name, given)) return 0;
    if (amount > <u64>i64.MAX_VALUE + (negative ? 1 : 0)) {
      this.no(name, "a 64-bit integer");
      return 0;
    }
    return negative ? <i64>(0 - amount) : <i64>amount;
  }

  u64(name: string, value: u64): u64 {
    if (this.mode == Mode.Write) {
      this.name(name);
      putUTF8(value.toString());
      return value;
    }
    if (this.mode == Mode.Schema) {
      this.describe(name, '{"type":["integer","string"],"format":"uint64"}');
      return value;
    }
    const given = this.given(name);
    if (!given || !this.integer(name, given)) return 0;
    if (negative && amount != 0) {
      this.no(name, "a non-negative integer");
      return 0;
    }
    return amount;
  }

  i32(name: string, value: i32): i32 {
    if (this.mode == Mode.Schema) {
      this.describe(name, '{"type":"integer","minimum":-2147483648,"maximum":2147483647}');
      return value;
    }
    const made = this.i64(name, value);
    if (made < i32.MIN_VALUE || made > i32.MAX_VALUE) this.no(name, "a 32-bit integer");
    return <i32>made;
  }

  bool(name: string, value: bool): bool {
    if (this.mode == Mode.Write) {
      this.name(name);
      putUTF8(value ? "true" : "false");
      return value;
    }
    if (this.mode == Mode.Schema) {
      this.describe(name, '{"type":"boolean"}');
      return value;
    }
    const given = this.given(name);
    if (!given) return false;
    if (given.kind != Kind.Bool) this.no(name, "true or false");
    return given.truth;
  }

  text(name: string, value: string): string {
    if (this.mode == Mode.Write) {
      this.name(name);
      putString(value);
      return value;
    }
    if (this.mode == Mode.Schema) {
      this.describe(name, '{"type":"string"}');
      return value;
    }
    const given = this.given(name);
    if (!given) return "";
    if (given.kind != Kind.Text) this.no(name, "a string");
    return given.text;
  }

  /** A member that is an object. */
  object<T extends Json>(name: string, value: T): T {
    if (this.mode == Mode.Write) {
      this.name(name);
      putObject(value);
      return value;
    }
    if (this.mode == Mode.Schema) {
      this.describe(name, '{"type":"object"}');
      return value;
    }
    const made = instantiate<T>();
    this.readInto(name, this.given(name), made);
    return made;
  }

  private readInto(name: string, given: Value | null, into: Json): void {
    const f = new Fields(Mode.Read, given);
    if (given && given.kind != Kind.Object && given.kind != Kind.Null) this.no(name, "an object");
    into.fields(f);
    if (f.invalid.length) this.no(name + "." + f.invalid, "so");
  }

  /** A member that is a list of objects. */
  list<T extends Json>(name: string, values: T[]): T[] {
    if (this.mode == Mode.Write) {
      this.name(name);
      putByte(0x5b);
      for (let i = 0; i < values.length; i++) {
        if (i > 0) putByte(0x2c);
        putObject(values[i]);
      }
      putByte(0x5d);
      return values;
    }
    if (this.mode == Mode.Schema) {
      this.describe(name, '{"type":["array","null"],"items":{"type":"object"}}');
      return values;
    }
    const made: T[] = [], given = this.given(name);
    if (!given) return made;
    if (given.kind != Kind.List) {
      this.no(name, "a list");
      return made;
    }
    const elements = given.values!;
    for (let i = 0; i < elements.length; i++) {
      const element = instantiate<T>();
      this.readInto(name, elements[i], element);
      made.push(element);
    }
    return made;
  }

  /** A member that is an object whose members have names of their own. */
  table<T extends Json>(name: string, table: Table<T>): Table<T> {
    if (this.mode == Mode.Write) {
      this.name(name);
      putByte(0x7b);
      for (let i = 0; i < table.size; i++) {
        if (i > 0) putByte(0x2c);
        putString(table.nameAt(i));
        putByte(0x3a);
        putObject(table.at(i));
      }
      putByte(0x7d);
      return table;
    }
    if (this.mode == Mode.Schema) {
      this.describe(name, '{"type":["object","null"],"additionalProperties":{"type":"object"}}');
      return table;
    }
    const made = new Table<T>(), given = this.given(name);
    if (!given) return made;
    if (given.kind != Kind.Object) {
      this.no(name, "an object");
      return made;
    }
    const names = given.names!, values = given.values!;
    for (let i = 0; i < names.length; i++) {
      const element = instantiate<T>();
      this.readInto(name, values[i], element);
      made.set(names[i], element);
    }
    return made;
  }
}

/**
 * Objects by name, sorted by name, which is the same order in every instance. A
 * Map has the order of insertion, which a snapshot does not preserve.
 */
export class Table<T> {
  private names: string[] = [];
  private values: T[] = [];

  get size(): i32 {
    return this.names.length;
  }

  private place(name: string): i32 {
    let low = 0, high = this.names.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.names[middle] < name) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  has(name: string): bool {
    const i = this.place(name);
    return i < this.names.length && this.names[i] == name;
  }

  /** The value of a name, which must exist. */
  get(name: string): T {
    assert(this.has(name), "hostd: a table has no such name");
    return this.values[this.place(name)];
  }

  set(name: string, value: T): void {
    const i = this.place(name);
    if (i < this.names.length && this.names[i] == name) {
      this.values[i] = value;
      return;
    }
    const n = this.names.length;
    this.names.push(name);
    this.values.push(value);
    for (let at = n; at > i; at--) {
      this.names[at] = this.names[at - 1];
      this.values[at] = this.values[at - 1];
    }
    this.names[i] = name;
    this.values[i] = value;
  }

  delete(name: string): void {
    if (!this.has(name)) return;
    const i = this.place(name);
    this.names.splice(i, 1);
    this.values.splice(i, 1);
  }

  nameAt(i: i32): string {
    return this.names[i];
  }

  at(i: i32): T {
    return this.values[i];
  }

  clear(): void {
    this.names = [];
    this.values = [];
  }
}

/** Reads an object into a new one; false with a reason. */
export function readObject(value: Value | null, into: Json): bool {
  if (value && value.kind != Kind.Object && value.kind != Kind.Null) {
    fault = "expected an object";
    return false;
  }
  const f = new Fields(Mode.Read, value);
  into.fields(f);
  fault = f.invalid;
  return !f.invalid.length;
}

/** Writes the schema of an object. */
export function putSchema(value: Json, given: bool, closed: bool): void {
  putUTF8(given ? '{"type":["object","null"],"properties":{' : '{"type":"object","properties":{');
  const f = new Fields(Mode.Schema, null);
  value.fields(f);
  putByte(0x7d);
  if (closed) putUTF8(',"additionalProperties":false');
  if (!given && f.requiredNames().length) putUTF8(',"required":[' + f.requiredNames() + "]");
  putByte(0x7d);
}
