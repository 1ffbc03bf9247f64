// Counter, written only from abi/ABI.md: without SDK or library. It behaves
// like the counter in C, and its state has the same form.

// Frames

const EVENT: u8 = 1;
const REPLY: u8 = 2;
const REJECT: u8 = 3;

const SNAPSHOT: u8 = 2;
const NAME: u8 = 16;
const PAYLOAD: u8 = 17;
const APPLIED: u8 = 32;

const INPUT_BYTES: i32 = (1 << 20) + 1024;

// Buffers whose addresses the host holds must never be collected.
const input = new StaticArray<u8>(INPUT_BYTES);
const output = new StaticArray<u8>(1024);
const inputAt = changetype<usize>(input);
const outputAt = changetype<usize>(output);
let written: i32 = 0;

// A range of bytes in memory.
class Bytes {
  constructor(public at: usize, public length: i32) {}

  is(text: ArrayBuffer): bool {
    return this.length == text.byteLength && memory.compare(this.at, changetype<usize>(text), text.byteLength) == 0;
  }
}

function span(at: usize, length: i32): u64 {
  return ((<u64>at) << 32) | (<u64>(<u32>length));
}

function put(text: ArrayBuffer): void {
  memory.copy(outputAt + written, changetype<usize>(text), text.byteLength);
  written += text.byteLength;
}

function putByte(byte: i32): void {
  store<u8>(outputAt + written++, <u8>byte);
}

function putText(text: ArrayBuffer): void {
  store<u16>(outputAt + written, <u16>text.byteLength);
  written += 2;
  put(text);
}

// openFrame begins a frame; closeFrame writes its length.
function openFrame(kind: u8): i32 {
  putByte(kind);
  written += 4;
  return written;
}

function closeFrame(start: i32): void {
  store<u32>(outputAt + start - 4, written - start);
}

// Results of the last call of nextFrame.
let kind: u8 = 0;
const frame = new Bytes(0, 0);

// nextFrame reads the frame at an offset of the input and returns the offset
// after it, or -1 at the end.
function nextFrame(at: i32, end: i32): i32 {
  if (end - at < 5) return -1;
  kind = load<u8>(inputAt + at);
  frame.length = load<i32>(inputAt + at + 1);
  frame.at = inputAt + at + 5;
  if (<u32>frame.length > <u32>(end - at - 5)) unreachable();
  return at + 5 + frame.length;
}

// JSON: an object with one number, which may be in quotes

const QUOTE: u8 = 0x22;
const MINUS: u8 = 0x2d;
const DIGIT: u8 = 0x30;

function putInteger(value: i64): void {
  let rest: u64 = value < 0 ? 0 - <u64>value : <u64>value;
  if (value < 0) putByte(MINUS);
  let digits = 1;
  for (let more = rest / 10; more > 0; more /= 10) digits++;
  written += digits;
  for (let i = 1; i <= digits; i++, rest /= 10) store<u8>(outputAt + written - i, DIGIT + <u8>(rest % 10));
}

// Result of the last call of integer or member.
let number: i64 = 0;

// integer reads digits only; it is false if there are none or they do not fit.
function integer(at: usize, length: i32): bool {
  const negative = length > 0 && load<u8>(at) == MINUS;
  const most: u64 = negative ? <u64>1 << 63 : ((<u64>1 << 63) - 1);
  if (negative) { at++; length--; }
  if (length == 0 || length > 19 || (load<u8>(at) == DIGIT && length > 1)) return false;
  let sum: u64 = 0;
  for (const end = at + length; at < end; at++) {
    const digit = load<u8>(at) - DIGIT;
    if (digit > 9) return false;
    sum = sum * 10 + digit;
  }
  if (sum > most) return false;
  number = negative ? <i64>(0 - sum) : <i64>sum;
  return true;
}

// member reads the number of {"name":number}; before is the text that must
// precede it.
function member(object: Bytes, before: ArrayBuffer): bool {
  let at = object.at + before.byteLength, length = object.length - before.byteLength - 1;
  if (length < 1 || memory.compare(object.at, changetype<usize>(before), before.byteLength) != 0) return false;
  if (load<u8>(at + length) != 0x7d) return false; // }
  if (length >= 2 && load<u8>(at) == QUOTE && load<u8>(at + length - 1) == QUOTE) { at++; length -= 2; }
  return integer(at, length);
}

// Texts

const ADD = String.UTF8.encode("add");
const ADDED = String.UTF8.encode("added");
const RESET = String.UTF8.encode("reset");
const TOTAL = String.UTF8.encode("total");
const AMOUNT_IS = String.UTF8.encode('{"amount":');
const TOTAL_IS = String.UTF8.encode('{"total":');
const NOTHING = String.UTF8.encode("{}");
const INVALID = String.UTF8.encode("invalid_argument");
const NOT_FOUND = String.UTF8.encode("not_found");
const OVERFLOW = String.UTF8.encode("overflow");
const NOT_AN_AMOUNT = String.UTF8.encode('the payload must be {"amount":INTEGER}');
const NO_COMMAND = String.UTF8.encode("no such command");
const NO_QUERY = String.UTF8.encode("no such query");
const TOO_MUCH = String.UTF8.encode("the total would not fit 64 bits");
const MANIFEST = String.UTF8.encode(
  '{"abi":1,"name":"counter-as","version":"1.0.0","entityTypes":[{"name":"counter",' +
  '"kind":"event-sourced","encoding":"json","commands":[{"name":"add"},{"name":"reset"}],' +
  '"queries":[{"name":"total"}],"events":[{"type":"added"},{"type":"reset"}]}]}');

function putObject(before: ArrayBuffer, value: i64): void {
  put(before);
  putInteger(value);
  putByte(0x7d); // }
}

// State: one total per entity, in pages of memory that are allocated one by
// one. The runtime's own allocator traps if there is no memory, but the
// contract has a status for that.

const TOTALS_A_PAGE: u64 = 8192;
const pages = new StaticArray<usize>(4096);

function hasRoom(entity: u64): bool {
  const page = entity / TOTALS_A_PAGE;
  if (page >= <u64>pages.length) return false;
  if (pages[<i32>page] == 0) {
    const grown = memory.grow(1);
    if (grown < 0) return false;
    pages[<i32>page] = <usize>grown << 16;
  }
  return true;
}

function total(entity: u64): usize {
  return pages[<i32>(entity / TOTALS_A_PAGE)] + (<usize>(entity % TOTALS_A_PAGE) << 3);
}

// evolve applies the type and payload of a stored event to a total.
const eventType = new Bytes(0, 0);
const eventPayload = new Bytes(0, 0);

function evolve(state: usize, at: usize, length: i32): void {
  eventType.at = at + 2;
  eventType.length = load<u16>(at);
  eventPayload.at = eventType.at + eventType.length;
  eventPayload.length = length - 2 - eventType.length;
  if (eventPayload.length < 0) unreachable();
  if (eventType.is(ADDED)) {
    if (!member(eventPayload, AMOUNT_IS)) unreachable();
    store<i64>(state, load<i64>(state) + number);
  } else if (eventType.is(RESET)) {
    store<i64>(state, 0);
  } else {
    unreachable(); // an event that this version does not know
  }
}

// begin opens the frame of an event with its type; emit closes it, and applies
// the bytes that were written to the state.
function begin(type: ArrayBuffer): i32 {
  const start = openFrame(EVENT);
  putText(type);
  return start;
}

function emit(state: usize, start: i32): void {
  closeFrame(start);
  evolve(state, outputAt + start, written - start);
}

function reply(state: usize): u64 {
  const start = openFrame(REPLY);
  putObject(TOTAL_IS, load<i64>(state));
  closeFrame(start);
  return span(outputAt, written);
}

function reject(code: ArrayBuffer, message: ArrayBuffer): u64 {
  const start = openFrame(REJECT);
  putText(code);
  put(message);
  closeFrame(start);
  return span(outputAt, written);
}

// The contract

export function hostd_abi(): i32 {
  return 1;
}

export function hostd_describe(): u64 {
  return span(changetype<usize>(MANIFEST), MANIFEST.byteLength);
}

export function hostd_buffer(size: u32): usize {
  return size <= <u32>INPUT_BYTES ? inputAt : 0;
}

export function hostd_load(type: i32, entity: u64, length: i32): i32 {
  if (type != 0) return 1;
  if (!hasRoom(entity)) return 2;
  let loaded: i64 = 0;
  for (let at = nextFrame(0, length); at >= 0; at = nextFrame(at, length)) {
    if (kind != SNAPSHOT) continue;
    if (!member(frame, TOTAL_IS)) return 1;
    loaded = number;
  }
  store<i64>(total(entity), loaded);
  return 0;
}

export function hostd_apply(entity: u64, length: i32): i32 {
  for (let at = nextFrame(0, length); at >= 0; at = nextFrame(at, length)) {
    if (kind != APPLIED) continue;
    if (frame.length < 18) return 1;
    evolve(total(entity), frame.at + 16, frame.length - 16); // after its sequence and time
  }
  return 0;
}

// Results of the last call of request: name and payload of a command or query.
const name = new Bytes(0, 0);
const payload = new Bytes(0, 0);

function request(length: i32): void {
  name.length = payload.length = 0;
  for (let at = nextFrame(0, length); at >= 0; at = nextFrame(at, length)) {
    const into = kind == NAME ? name : kind == PAYLOAD ? payload : null;
    if (into) { into.at = frame.at; into.length = frame.length; }
  }
}

export function hostd_handle(entity: u64, length: i32): u64 {
  const state = total(entity);
  written = 0;
  request(length);
  if (name.is(RESET)) {
    const start = begin(RESET);
    put(NOTHING);
    emit(state, start);
    return reply(state);
  }
  if (!name.is(ADD)) return reject(NOT_FOUND, NO_COMMAND);
  if (!member(payload, AMOUNT_IS)) return reject(INVALID, NOT_AN_AMOUNT);
  const amount = number, before = load<i64>(state), after = before + amount;
  if (((before ^ after) & (amount ^ after)) < 0) return reject(OVERFLOW, TOO_MUCH);
  const start = begin(ADDED);
  putObject(AMOUNT_IS, amount);
  emit(state, start);
  return reply(state);
}

export function hostd_query(entity: u64, length: i32): u64 {
  written = 0;
  request(length);
  return name.is(TOTAL) ? reply(total(entity)) : reject(NOT_FOUND, NO_QUERY);
}

export function hostd_snapshot(entity: u64): u64 {
  written = 0;
  putObject(TOTAL_IS, load<i64>(total(entity)));
  return span(outputAt, written);
}

export function hostd_drop(entity: u64): void {
  store<i64>(total(entity), 0);
}
