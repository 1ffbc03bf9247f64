/** The names of Connect's codes: https://connectrpc.com/docs/protocol/#error-codes */
export type Code =
  | "canceled" | "unknown" | "invalid_argument" | "deadline_exceeded" | "not_found" | "already_exists"
  | "permission_denied" | "resource_exhausted" | "failed_precondition" | "aborted" | "out_of_range"
  | "unimplemented" | "internal" | "unavailable" | "data_loss" | "unauthenticated";

/** A failure that a node reported, or a failure to reach a node. */
export class HostdError extends Error {
  readonly code: Code;
  /** Names the failure for programs, such as KIND_CHANGED; empty if it has no name. */
  reason = "";
  /** How long the node asks to wait before another attempt; 0 if it does not ask. */
  retryAfterMs = 0;
  /** The members of the payload that violate its schema. */
  violations: { field: string; description: string }[] = [];
  constructor(code: Code, message: string) {
    super(message);
    this.name = new.target.name;
    this.code = code;
  }
}

/** A module's handler rejected the command. Nothing was written. */
export class Rejected<C extends string = string> extends HostdError {
  readonly rejection: C;
  constructor(rejection: C, message: string) {
    super("failed_precondition", message);
    this.rejection = rejection;
  }
}

/** The entity was not at the expected sequence. Nothing was written. */
export class SequenceMismatch extends HostdError {
  readonly actual: number;
  constructor(actual: number, message: string) {
    super("failed_precondition", message);
    this.actual = actual;
  }
}

/** The requested events were truncated by the retention of the entity type. */
export class EventsTruncated extends HostdError {
  /** The sequence of the entity's first kept event. */
  readonly first: number;
  constructor(first: number, message: string) {
    super("out_of_range", message);
    this.first = first;
  }
}

/**
 * Reports whether it is unknown if a command took effect. To find out, send it
 * again with the same id and the time of the first attempt. After "aborted", read
 * the entity instead, because it no longer remembers the id.
 */
export function outcomeUnknown(e: unknown): boolean {
  return e instanceof HostdError && ["deadline_exceeded", "canceled", "unknown", "aborted"].includes(e.code);
}

/**
 * Reports whether a cursor belongs to a history that the cluster no longer has,
 * because a data directory was restored or a shard was recovered without its newest
 * events. Some delivered events are no longer part of the history, so discard
 * everything derived from events and subscribe without a cursor.
 */
export function historyLost(e: unknown): boolean {
  return e instanceof HostdError && e.reason === "CURSOR_HISTORY_LOST";
}

export interface Options {
  /** Limits the time of a call with all its attempts; 10,000. */
  timeoutMs?: number;
  /** Limits the time of one attempt, because a failed node may not answer; 4,000. */
  attemptMs?: number;
  /** The shortest and the longest pause before another attempt; 10 and 500. */
  minBackoffMs?: number;
  maxBackoffMs?: number;
  /** A stream that receives nothing for this time continues at the next node; 30,000. */
  idleMs?: number;
  /** The bearer token of every call. It is sent over http to this machine only. */
  token?: string | (() => string | Promise<string>);
  /** Sends the token over http to any machine. Others in the network can read it. */
  insecureToken?: boolean;
  fetch?: typeof fetch;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** Replaces the client's timeoutMs. */
  timeoutMs?: number;
}

/** A call that has an id and takes effect once, so it is safe to send again. */
export interface Once {
  /** The Date.now() of the first attempt with this id, if its outcome is unknown. */
  firstTried?: number | undefined;
}

type Json = any;

/** Why an attempt failed, and what that means for the call. */
class Attempt {
  readonly error: HostdError;
  /** Another attempt may succeed. */
  readonly retry: boolean;
  /** A node may have received the request, and the outcome is unknown. */
  readonly carried: boolean;
  constructor(error: HostdError, retry: boolean, carried: boolean) {
    this.error = error;
    this.retry = retry;
    this.carried = carried;
  }
}

const maxReadFailures = 20; // consecutive ones, of a stream that does not follow
const maxMessageBytes = 32 << 20; // of a stream
const clusterHeader = "Hostd-Cluster";

/** Calls the nodes of one cluster, given by their URLs, one after another until one answers. */
export class Transport {
  readonly #nodes: string[];
  readonly #options: Required<Omit<Options, "token" | "insecureToken">> & Options;
  #at = 0;
  #cluster = "";
  readonly #others = new Set<string>();

  constructor(addresses: string | string[], options: Options = {}) {
    this.#nodes = [addresses].flat().map((a) => (a.includes("://") ? a : "http://" + a).replace(/\/+$/, ""));
    if (this.#nodes.length === 0) throw new TypeError("no address is given");
    this.#options = { timeoutMs: 10_000, attemptMs: 4_000, minBackoffMs: 10, maxBackoffMs: 500, idleMs: 30_000, fetch: (...a) => fetch(...a), ...options };
    for (const node of this.#nodes) {
      const { protocol, hostname } = new URL(node);
      if (options.token && !options.insecureToken && protocol !== "https:" && !/^(localhost|127\.[\d.]+|\[::1\])$/.test(hostname)) {
        throw new TypeError(`the token is not sent to ${node} without TLS`);
      }
    }
  }

  /**
   * Calls a procedure until it succeeds, fails permanently or the time is up. A
   * call that is not safe to repeat is not repeated if a node may have carried it out.
   */
  async unary(procedure: string, request: Json, safe: boolean | Once, o: CallOptions = {}): Promise<Json> {
    const until = Date.now() + (o.timeoutMs ?? this.#options.timeoutMs);
    const pause = this.#backoff();
    const once = typeof safe === "object" ? safe : undefined;
    let first = once?.firstTried === undefined ? undefined : { wall: once.firstTried, clock: Infinity };
    let carried = false;
    for (;;) {
      const now = { wall: Date.now(), clock: performance.now() };
      // The monotonic clock stops while the machine sleeps, and the wall clock may be changed.
      if (first) request = { ...request, firstAttemptAge: `${Math.max(1, Math.ceil(Math.max(now.wall - first.wall, now.clock - first.clock))) / 1000}s` };
      const place = this.#at;
      let failed: Attempt;
      try {
        return await this.#call(place, procedure, request, Math.max(1, Math.min(this.#options.attemptMs, until - Date.now())), o.signal);
      } catch (e) {
        if (!(e instanceof Attempt)) throw e;
        failed = e;
      }
      if (once && failed.carried) first ??= now;
      if (failed.retry && (safe || !failed.carried) && Date.now() < until && !o.signal?.aborted) {
        carried ||= failed.carried;
        this.#next(place);
        if (await pause.wait(until - Date.now(), o.signal)) continue;
      }
      throw carried ? unsettled(failed.error) : failed.error;
    }
  }

  /**
   * Follows a stream whose messages each have a cursor. If a node fails, the stream
   * continues at another node after the last message, without gaps or repetitions.
   */
  async *resumed(procedure: string, request: Json, signal?: AbortSignal): AsyncGenerator<Json, void, undefined> {
    let pause = this.#backoff();
    for (let failures = 0; ; ) {
      const place = this.#at;
      try {
        for await (const m of this.#open(place, procedure, request, signal)) {
          failures = 0;
          pause = this.#backoff();
          request = { ...request, cursor: m.cursor };
          yield m;
        }
        return;
      } catch (e) {
        if (!(e instanceof Attempt)) throw e;
        failures++;
        if (!e.retry || signal?.aborted || (!request.follow && failures > maxReadFailures)) throw e.error;
        this.#next(place);
        if (!(await pause.wait(Infinity, signal))) throw e.error;
      }
    }
  }

  /** Opens a stream at one node and does not retry. */
  async *stream(procedure: string, request: Json, signal?: AbortSignal): AsyncGenerator<Json, void, undefined> {
    const place = this.#at;
    try {
      yield* this.#open(place, procedure, request, signal);
    } catch (e) {
      if (!(e instanceof Attempt)) throw e;
      if (e.retry) this.#next(place);
      throw e.error;
    }
  }

  #next(from: number): void {
    if (this.#at === from) this.#at = (from + 1) % this.#nodes.length;
  }

  #backoff() {
    let next = this.#options.minBackoffMs;
    return {
      /** Pauses for half to all of the current length, then doubles the length. */
      wait: (most: number, signal?: AbortSignal): Promise<boolean> => {
        const ms = next / 2 + (Math.random() * next) / 2;
        next = Math.min(2 * next, this.#options.maxBackoffMs);
        return new Promise((done) => {
          const end = () => {
            clearTimeout(timer);
            signal?.removeEventListener("abort", end);
            done(ms < most && !signal?.aborted);
          };
          const timer = setTimeout(end, Math.max(0, Math.min(ms, most)));
          signal?.addEventListener("abort", end);
          if (signal?.aborted) end();
        });
      },
    };
  }

  /** Sends a request and passes the answer to read, until the watch ends. */
  async #send<T>(place: number, procedure: string, headers: Record<string, string>, body: BodyInit, watch: Watch, read: (res: Response) => Promise<T>): Promise<T> {
    const node = this.#nodes[place]!;
    const { token } = this.#options;
    const named = this.#cluster;
    const bearer = typeof token === "function" ? await token() : token;
    try {
      if (bearer) headers["Authorization"] = "Bearer " + bearer;
      if (named) headers[clusterHeader] = named;
      const res = await watch.race(this.#options.fetch(`${node}/${procedure}`, {
        method: "POST", headers: { "Connect-Protocol-Version": "1", ...headers }, body, signal: watch.signal,
      }));
      const cluster = res.headers.get(clusterHeader);
      if (cluster) {
        this.#cluster ||= cluster;
        if (cluster !== this.#cluster) {
          this.#others.add(node);
          const e = new HostdError(named ? "failed_precondition" : "unknown", `the node at ${node} belongs to cluster ${cluster}, the others to ${this.#cluster}`);
          e.reason = "OTHER_CLUSTER";
          throw new Attempt(e, this.#others.size < this.#nodes.length, !named);
        }
        this.#others.delete(node);
      }
      return await watch.race(read(res));
    } catch (e) {
      if (e instanceof Attempt) throw e;
      throw watch.why(e);
    }
  }

  async #call(place: number, procedure: string, request: Json, ms: number, signal?: AbortSignal): Promise<Json> {
    const body = JSON.stringify(request);
    const watch = new Watch(ms, signal);
    try {
      return await this.#send(place, procedure, { "Content-Type": "application/json", "Connect-Timeout-Ms": String(Math.ceil(ms)) }, body, watch, async (res) => {
        const text = await res.text();
        if (res.ok) return parse(text);
        let wire: Json;
        try {
          wire = JSON.parse(text);
        } catch {
          // The answer is not from a node.
        }
        throw wire?.code ? told(wire) : untold(res.status);
      });
    } finally {
      watch.end();
    }
  }

  async *#open(place: number, procedure: string, request: Json, signal?: AbortSignal): AsyncGenerator<Json, void, undefined> {
    const body = new TextEncoder().encode(JSON.stringify(request));
    const enveloped = new Uint8Array(5 + body.length);
    new DataView(enveloped.buffer).setUint32(1, body.length);
    enveloped.set(body, 5);
    const watch = new Watch(this.#options.idleMs, signal);
    try {
      const reader = await this.#send(place, procedure, { "Content-Type": "application/connect+json" }, enveloped, watch, async (res) => {
        if (!res.ok || !res.body) throw untold(res.status);
        return res.body.getReader();
      });
      let held = new Uint8Array(0);
      for (;;) {
        for (; held.length >= 5; ) {
          const end = 5 + new DataView(held.buffer, held.byteOffset).getUint32(1);
          if (end > maxMessageBytes) throw new Attempt(new HostdError("resource_exhausted", `a message has more than ${maxMessageBytes} bytes`), false, false);
          if (held.length < end) break;
          let message: Json;
          try {
            message = parse(new TextDecoder().decode(held.subarray(5, end)));
          } catch (e) {
            throw watch.why(e);
          }
          if (held[0]! & 2) {
            if (message.error) throw told(message.error);
            return;
          }
          held = held.subarray(end);
          watch.stop();
          yield message;
          watch.start();
        }
        let more: ReadableStreamReadResult<Uint8Array>;
        try {
          more = await watch.race(reader.read());
        } catch (e) {
          throw watch.why(e);
        }
        watch.start();
        if (more.done) throw watch.why("the stream was cut off");
        const both = new Uint8Array(held.length + more.value.length);
        both.set(held);
        both.set(more.value, held.length);
        held = both;
      }
    } finally {
      watch.end();
    }
  }
}

/** Ends an attempt at its timeout, or if the caller cancels it. */
class Watch {
  readonly #ms: number;
  readonly #caller: AbortSignal | undefined;
  readonly #controller = new AbortController();
  readonly #ended: Promise<never>;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #late = false;
  readonly #abort = () => this.#controller.abort();

  constructor(ms: number, caller?: AbortSignal) {
    this.#ms = ms;
    this.#caller = caller;
    this.#ended = new Promise((_, fail) => this.signal.addEventListener("abort", () => fail(new Error("ended"))));
    this.#ended.catch(() => {});
    caller?.addEventListener("abort", this.#abort);
    if (caller?.aborted) this.#abort();
    this.start();
  }
  get signal(): AbortSignal {
    return this.#controller.signal;
  }
  race<T>(work: Promise<T>): Promise<T> {
    work.catch(() => {});
    return Promise.race([work, this.#ended]);
  }
  start(): void {
    this.stop();
    this.#timer = setTimeout(() => {
      this.#late = true;
      this.#abort();
    }, this.#ms);
  }
  stop(): void {
    clearTimeout(this.#timer);
  }
  end(): void {
    this.stop();
    this.#caller?.removeEventListener("abort", this.#abort);
    this.#abort();
  }
  /** Returns what a failure without an answer from a node means for the call. */
  why(e: any): Attempt {
    if (this.#caller?.aborted) return new Attempt(new HostdError("canceled", "the caller wants it no longer"), false, true);
    if (this.#late) return new Attempt(new HostdError("deadline_exceeded", "no answer in time"), true, true);
    // Only a refused connection proves that no node received the request.
    if (e?.cause?.code === "ECONNREFUSED") return new Attempt(new HostdError("unavailable", String(e.cause.message ?? e)), true, false);
    return new Attempt(new HostdError("unknown", String(e?.cause?.message ?? e?.message ?? e)), true, true);
  }
}

/** An answer that does not come from a node but, for example, from a proxy. */
function untold(status: number): Attempt {
  const gone = status === 404;
  return new Attempt(new HostdError(gone ? "unimplemented" : "unknown", `the answer has the status ${status} of HTTP`), !gone, true);
}

/** An error that a node answered. */
function told(wire: Json): Attempt {
  let error = new HostdError(wire.code, wire.message ?? "");
  for (const d of wire.details ?? []) {
    const value = fields(d.value);
    const text = (n: number) => new TextDecoder().decode(value.find((f) => f[0] === n)?.[1] as Uint8Array | undefined);
    const number = (n: number) => (value.find((f) => f[0] === n)?.[1] as number | undefined) ?? 0;
    switch (d.type) {
      case "hostd.entity.v1.Rejection":
        error = new Rejected(text(1), text(2));
        break;
      case "hostd.entity.v1.SequenceMismatch":
        error = new SequenceMismatch(number(1), error.message);
        break;
      case "hostd.entity.v1.EventsTruncated":
      case "hostd.entity.v1.EventsCut": // the name in the previous release
        error = new EventsTruncated(number(1), error.message);
        break;
      case "google.rpc.ErrorInfo":
        error.reason = text(1);
        break;
      case "google.rpc.RetryInfo":
        for (const [, inner] of value) {
          for (const [n, v] of fields(inner as Uint8Array)) error.retryAfterMs += (v as number) * (n === 1 ? 1e3 : 1e-6);
        }
        break;
      case "google.rpc.BadRequest":
        for (const [, inner] of value) {
          const of = new Map(fields(inner as Uint8Array).map(([n, v]) => [n, new TextDecoder().decode(v as Uint8Array)]));
          error.violations.push({ field: of.get(1) ?? "", description: of.get(2) ?? "" });
        }
    }
  }
  const lost = ["deadline_exceeded", "unknown", "canceled"].includes(error.code);
  return new Attempt(error, lost || error.code === "unavailable", lost);
}

/**
 * The failure of a command that an earlier attempt may have carried out, or may
 * still carry out. A node looks up the command id before it decides a command, but
 * an overloaded node rejects a request before that. The rejection of a handler is
 * not stored, so each attempt is decided again.
 */
function unsettled(last: HostdError): HostdError {
  // Sequences only grow, so a sequence that did not match cannot match later.
  const settled = ["invalid_argument", "not_found", "unimplemented", "aborted"].includes(last.code) ||
    (last.code === "failed_precondition" && !(last instanceof Rejected) && last.reason !== "OTHER_CLUSTER");
  return settled ? last : new HostdError("unknown", "an earlier attempt may have taken effect; the last one: " + last.message);
}

/** The fields of a protobuf message: numbers, and the bytes of fields with a length. */
function fields(b: Uint8Array | string): [number, number | Uint8Array][] {
  if (typeof b === "string") b = bytes(b);
  const out: [number, number | Uint8Array][] = [];
  let at = 0;
  const varint = () => {
    let v = 0;
    for (let unit = 1; at < b.length; unit *= 128) {
      const next = b[at++] as number;
      v += (next & 127) * unit;
      if (next < 128) break;
    }
    return v;
  };
  while (at < b.length) {
    const key = varint();
    const v = varint();
    if ((key & 7) === 2) out.push([key >> 3, b.slice(at, (at += v))]);
    else out.push([key >> 3, v]);
  }
  return out;
}

/**
 * Parses a JSON text. Integers beyond 2^53, which JavaScript would round, become
 * strings of their digits.
 */
export function parse(text: string): any {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text.replace(/"[^"\\]*(?:\\[^][^"\\]*)*"|-?\d+(?:[.eE][\d.eE+-]*)?/g,
    (token) => /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token));
}

/** Decodes base64. */
export function bytes(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/** Encodes bytes as base64. */
export function base64(b: Uint8Array): string {
  let text = "";
  for (const c of b) text += String.fromCharCode(c);
  return btoa(text);
}

/** Returns a new command id: 16 random bytes in hex. */
export function newCommandId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}
