// Differences of JSON values, and the text of JSON values.
import { parse } from "./api.ts";

export interface Change {
  path: string;
  before?: unknown;
  after?: unknown;
}

const most = 200;

/** Returns at most 200 differences between two values, with their paths. */
export function changes(before: unknown, after: unknown): Change[] {
  const out: Change[] = [];
  walk("", before, after, out);
  return out;
}

function isTree(v: unknown): v is Record<string, unknown> {
  return typeof v === "object" && v !== null;
}

function walk(path: string, a: unknown, b: unknown, out: Change[]): void {
  if (out.length >= most || a === b) return;
  if (isTree(a) && isTree(b) && Array.isArray(a) === Array.isArray(b)) {
    for (const k of new Set([...Object.keys(a), ...Object.keys(b)])) walk(Array.isArray(a) ? `${path}[${k}]` : path ? `${path}.${k}` : k, a[k], b[k], out);
    return;
  }
  if (a === undefined) out.push({ path, after: b });
  else if (b === undefined) out.push({ path, before: a });
  else out.push({ path, before: a, after: b });
}

/** Returns a value on one line, shortened if it is long. */
export function brief(v: unknown, length = 120): string {
  const text = v === undefined ? "" : JSON.stringify(v);
  return text.length > length ? text.slice(0, length - 1) + "…" : text;
}

export function pretty(v: unknown): string {
  return v === undefined ? "nothing" : JSON.stringify(v, null, 2);
}

/**
 * Parses a JSON text that will be sent. Integers beyond 2^53 keep their digits in
 * browsers that have JSON.rawJSON.
 */
export function exact(text: string): unknown {
  const rawJSON = (JSON as { rawJSON?: (text: string) => unknown }).rawJSON;
  type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;
  const keep: Reviver = (_, v, context) => (rawJSON && context?.source && /^-?\d+$/.test(context.source) && !Number.isSafeInteger(v) ? rawJSON(context.source) : v);
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown);
}

/** Returns the payload of a message: a JSON value, or bytes, which may be JSON too. */
export function payload(m: { json?: unknown; data?: string } | undefined): unknown {
  if (!m) return undefined;
  if (m.json !== undefined) return m.json;
  if (m.data === undefined) return undefined;
  try {
    const raw = Uint8Array.from(atob(m.data), (c) => c.charCodeAt(0));
    const text = new TextDecoder("utf-8", { fatal: true }).decode(raw);
    try {
      return parse(text);
    } catch {
      return text;
    }
  } catch {
    return `${m.data.length} characters of base64: ${m.data}`;
  }
}
