import * as texts from "./json.js";
import { natives } from "./natives.js";

/** Kinds of frames, as the guest contract numbers them. */
export const input = {
  entityID: 1, snapshot: 2, sequence: 3, stateVersion: 4, name: 16, payload: 17, commandID: 18, now: 19, seed: 20, source: 21, due: 22,
  principal: 23, settings: 24, token: 25, event: 32,
} as const;

export const output = {
  event: 1, reply: 2, reject: 3, send: 4, setTimer: 5, cancelTimer: 6, passivate: 7, tag: 8, state: 9, delete: 10,
  sendWithAnswer: 11, setSchedule: 12, sendWithToken: 13, progress: 14,
} as const;

const kinds = 33;
const headerBytes = 5;
const longestField = 0xffff;

let inputBytes = new Uint8Array(4096);
let inputView = new DataView(inputBytes.buffer);

/** Makes the input buffer that large, plus one byte: see natives.json. */
export function growInput(size: number): number {
  const capacity = Math.max(size, Math.min(2 * inputBytes.length, 4 << 20));
  inputBytes = new Uint8Array(capacity + 1);
  inputView = new DataView(inputBytes.buffer);
  natives.input(inputBytes.buffer);
  return capacity;
}

// The offsets of the frames of a request, by kind, -1 for missing ones,
// followed by their sizes.
const table = new ArrayBuffer(2 * 4 * kinds);
const places = new Int32Array(table, 0, kinds);
const sizes = new Int32Array(table, 4 * kinds, kinds);

/** Finds the frames of the input. */
export function read(end: number): void {
  if (!natives.read(end, table)) throw new Error("a frame of the input is cut off");
}

// The kind of the frame that header has read last.
let kind = 0;
let bytes = 0;

function header(at: number, end: number): number {
  if (end - at < headerBytes) throw new Error("the input is cut off");
  kind = inputBytes[at]!;
  bytes = inputView.getUint32(at + 1, true);
  if (bytes > end - at - headerBytes) throw new Error("a frame of the input is cut off");
  return at + headerBytes;
}

export function has(kind: number): boolean {
  return places[kind]! >= 0;
}

export function text(kind: number): string {
  const at = places[kind]!;
  return at < 0 ? "" : natives.text(at, sizes[kind]!);
}

/** The value of a JSON text; undefined if the frame is missing. */
export function json(kind: number): unknown {
  const at = places[kind]!;
  return at < 0 || sizes[kind] === 0 ? undefined : texts.input(at, sizes[kind]!);
}

export function uint32(kind: number, offset: number): number {
  const at = places[kind]!;
  return at < 0 ? 0 : inputView.getUint32(at + offset, true);
}

/** A 64-bit number, exact up to 2^53. */
export function uint64(kind: number): number {
  return uint32(kind, 4) * 2 ** 32 + uint32(kind, 0);
}

/** A 64-bit number with all its bits. */
export function uint64Exact(kind: number): bigint {
  const at = places[kind]!;
  return at < 0 ? 0n : inputView.getBigUint64(at, true);
}

/** The number of bytes of a frame; 0 if it is missing. */
export function size(kind: number): number {
  return places[kind]! < 0 ? 0 : sizes[kind]!;
}

export function nanoseconds(kind: number): bigint {
  const at = places[kind]!;
  return at < 0 ? 0n : inputView.getBigInt64(at, true);
}

/**
 * The fields of a frame after its first bytes: texts, each preceded by its
 * length.
 */
export function fields(kind: number, offset: number): string[] {
  const found: string[] = [];
  const start = places[kind]!;
  const end = start + sizes[kind]!;
  for (let at = start + offset; start >= 0 && at < end;) {
    const length = inputView.getUint16(at, true);
    found.push(natives.text(at + 2, length));
    at += 2 + length;
  }
  return found;
}

/** The first byte of a frame; 0 if it is missing. */
export function byte(kind: number): number {
  const at = places[kind]!;
  return at < 0 ? 0 : inputBytes[at]!;
}

// The offset of the payload of the event that eachEvent has passed last.
let eventStart = 0;
let eventAt = 0;
let eventSize = 0;

/** The encoded payload of the current event of eachEvent. */
export function eventText(): string {
  return natives.text(eventAt, eventSize);
}

/** When the current event of eachEvent was recorded. */
export function eventTime(): bigint {
  return inputView.getBigInt64(eventStart + 8, true);
}

/**
 * Calls the function with each event of the input, in order; encoded passes the
 * payloads as texts.
 */
export function eachEvent(end: number, event: (type: string, payload: any) => void, encoded = false): void {
  for (let at = 0; at < end;) {
    at = header(at, end);
    const behind = at + bytes;
    if (kind === input.event) {
      eventStart = at;
      const name = at + 16; // after its sequence and time
      const length = inputView.getUint16(name, true);
      eventAt = name + 2 + length;
      eventSize = behind - eventAt;
      const type = natives.text(name + 2, length);
      if (encoded) event(type, eventText());
      else event(type, eventSize > 0 ? texts.input(eventAt, eventSize) : undefined);
    }
    at = behind;
  }
}

let outputBytes = new Uint8Array(64 << 10);
let outputView = new DataView(outputBytes.buffer);
let written = 0;

/** Passes the current buffers to the engine. */
export function begin(): void {
  natives.input(inputBytes.buffer);
  natives.output(outputBytes.buffer);
}

function room(bytes: number): void {
  if (written + bytes <= outputBytes.length) return;
  const larger = new Uint8Array(Math.max(written + bytes, 2 * outputBytes.length));
  larger.set(outputBytes);
  outputBytes = larger;
  outputView = new DataView(outputBytes.buffer);
  natives.output(outputBytes.buffer);
}

/** Discards the output, or everything after an offset. */
export function reset(to = 0): void {
  written = to;
}

export function length(): number {
  return written;
}

function write(value: string, what: number): number {
  const bytes = natives.put(value, written, outputBytes.length, what);
  if (written + bytes > outputBytes.length) {
    room(bytes);
    natives.put(value, written, outputBytes.length, what);
  }
  written += bytes;
  return bytes;
}

/** Writes a text without a header or length. */
export function put(value: string): void {
  write(value, 0);
}

/** Writes a whole frame with a text. */
export function frame(kind: number, value: string): void {
  write(value, kind);
}

/** Begins a frame, which end ends. */
export function start(kind: number): number {
  room(headerBytes);
  outputBytes[written] = kind;
  written += headerBytes;
  return written;
}

export function end(started: number): void {
  outputView.setUint32(started - 4, written - started, true);
}

/**
 * Writes a text with its length, which has 16 bits. It truncates a longer text
 * to what fits. That is still over the limit of any name, so the host rejects
 * the command with out_of_range. An error here instead would be a guest fault
 * that a caller can cause.
 */
export function field(value: string): void {
  const start = written;
  if (write(value, -1) - 2 <= longestField) return;
  outputView.setUint16(start, longestField, true);
  written = start + 2 + longestField;
}

export function putByte(value: number): void {
  room(1);
  outputBytes[written++] = value;
}

export function putUint16(value: number): void {
  room(2);
  outputView.setUint16(written, value, true);
  written += 2;
}

export function putUint32(value: number): void {
  room(4);
  outputView.setUint32(written, value, true);
  written += 4;
}

export function putNanoseconds(value: bigint): void {
  room(8);
  outputView.setBigInt64(written, value, true);
  written += 8;
}
