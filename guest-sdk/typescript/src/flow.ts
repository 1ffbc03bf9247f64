import * as clock from "./clock.js";
import { type Instant, nanosecondsOf, never } from "./context.js";
import * as json from "./json.js";
import { natives } from "./natives.js";
import { invalidPayload, Rejection } from "./reject.js";
import { Misfit, type Schema } from "./schema.js";
import { summary } from "./trace.js";

// A run is an async function that runs until it awaits the outcome of a step.
// Nothing of it is stored except its input and two events a step: asked when the
// function asks for it, and came with its outcome. A load runs the function again
// and settles the promises of its steps from the events, so the function must ask
// for the same steps again. Each step that it asks for is compared with the asked
// event in its place, also the last one, whose outcome is missing.
//
// After each outcome the engine's jobs run until none is left, so what a function
// does depends only on the order of the outcomes in the history. It follows that a
// function whose promise is pending then, and that waits for no step, can never
// continue.
//
// Events, digests and tokens have the same bytes as in the Go SDK.

// Limits of a run.
const maxSteps = 10_000;
const maxHistoryBytes = 8 << 20;
export const maxStepBytes = 48 << 10; // of an outcome, a signal, an input and a result
export const maxAsks = 64; // after which a run yields
const maxAskBytes = 128 << 10;
const maxPayloadBytes = 64 << 10;
const maxChildren = 48; // runs that a run has started and that have not ended
export const maxPatches = 32; // of a run, since its last checkpoint
const maxCheckpoint = 60 << 10; // bytes of its event

/** Codes of the rejections of steps, besides those of the entities. */
export const cancelled = "cancelled";
export const deadlineExceeded = "deadline_exceeded";
export const resultTooLarge = "result_too_large";
const payloadTooLarge = "payload_too_large";
const tooManySteps = "too_many_steps";
const checkpointTooLarge = "checkpoint_too_large";
const tooManyChildren = "too_many_children";

/** A length of time: milliseconds, or a text such as "90s", "24h" or "1h30m". */
export type Duration = number | string;

const units: { [unit: string]: bigint } = {
  ns: 1n, us: 1_000n, ms: 1_000_000n, s: 1_000_000_000n, m: 60_000_000_000n, h: 3_600_000_000_000n, d: 86_400_000_000_000n,
};

function nanosecondsIn(length: Duration): bigint {
  let sum = 0n;
  if (typeof length === "number" && Number.isFinite(length)) {
    sum = Number.isInteger(length) ? BigInt(length) * 1_000_000n : BigInt(Math.round(length * 1e6));
  } else if (typeof length === "string" && /^(\d+(ns|us|ms|s|m|h|d))+$/.test(length)) {
    for (const [, digits, unit] of length.matchAll(/(\d+)([a-z]+)/g)) sum += BigInt(digits!) * units[unit!]!;
  } else {
    throw new TypeError(`${JSON.stringify(length)} is not a duration: use milliseconds, or a text such as "90s" or "1h30m"`);
  }
  return sum < never ? sum > -never ? sum : -never : never;
}

const later = (at: bigint, by: bigint): bigint => at + by < never ? at + by : never;

/** When a call is made again: see CallOptions. */
export interface Retry {
  /** How often the call is made at most. */
  attempts: number;
  /** The wait before the second attempt; default 1 s. */
  initial?: Duration;
  /** The wait doubles before each later attempt, up to this; default 1 min. */
  most?: Duration;
  /** The codes of the rejections after which the call is made again. */
  codes?: readonly string[];
}

/** How a call waits. */
export interface CallOptions<R = unknown> {
  /**
   * How long to wait: then the call is rejected with deadline_exceeded. Its
   * command may still take effect.
   */
  within?: Duration;
  /**
   * If false, a cancellation of the run does not end this wait; default true.
   * Use it for commands whose outcome the function must know, such as a
   * payment, and check Flow.cancelled after the step: a cancelled wait does not
   * undo a command that was sent.
   */
  cancellable?: boolean;
  /**
   * Makes the call again if it was rejected with one of the codes, or with
   * internal, because its entity failed.
   */
  retry?: Retry;
  /** The schema of the reply. Another reply rejects with invalid_payload. */
  reply?: Schema<R>;
}

/** How a wait for a signal waits. */
export interface WaitOptions<T = unknown> {
  within?: Duration;
  /** As for calls. */
  cancellable?: boolean;
  /** The schema of the signal's value. */
  schema?: Schema<T>;
}

/** How a child run is waited for. */
export interface RunOptions<R = unknown> {
  within?: Duration;
  /** As for calls. */
  cancellable?: boolean;
  /** What happens to the child if its parent ends before it; default terminate. */
  onParentEnd?: "terminate" | "cancel" | "abandon";
  /** The schema of the result. */
  result?: Schema<R>;
}

class RetryPolicy {
  readonly initial: bigint;
  readonly most: bigint;
  readonly attempts: number;
  readonly codes: readonly string[];

  constructor(given: Retry) {
    if (!Number.isSafeInteger(given.attempts) || given.attempts < 1) throw new TypeError("retry needs a number of attempts of at least 1");
    this.attempts = given.attempts;
    this.initial = nanosecondsIn(given.initial ?? 1_000);
    this.most = nanosecondsIn(given.most ?? 60_000);
    this.codes = [...new Set(given.codes ?? [])].sort(); // their order has no effect
  }

  /** How long to wait before the attempt after the given one; undefined if there is none. */
  wait(attempt: number, code: string): bigint | undefined {
    if (attempt >= this.attempts || code !== "internal" && !this.codes.includes(code)) return undefined;
    const least = this.initial > 1_000_000n ? this.initial : 1_000_000n;
    const most = this.most > least ? this.most : least;
    let wait = least;
    for (let i = 1; i < attempt && wait < this.most; i++) wait *= 2n;
    return wait < most ? wait : most;
  }
}

type StepKind = "call" | "send" | "sleep" | "wait" | "run";

/** One step of a run. */
export class Step {
  number = 0;
  attempt = 0;
  digest = "";
  size = 0; // bytes of the payload
  due = 0n;
  within = 0n;
  cancellable = true;
  retry?: RetryPolicy;
  close = ""; // of a child run
  resolve?: (value: any) => void;
  reject?: (error: Rejection) => void;
  schema?: Schema<any>;

  /** The payload is encoded; name is that of the command or of the signal. */
  constructor(readonly kind: StepKind, readonly type: string, readonly id: string, readonly name: string, readonly payload: string) {}

  get target(): string { return this.type === "" ? "" : `${this.type}/${this.id}`; }

  get text(): string { return stepText(this.kind, this.target, this.name); }

  /**
   * Sets the digest: of the payload, and of the numbers and the codes that must
   * not change while the step waits.
   */
  sum(...numbers: (bigint | number)[]): this {
    const r = this.retry;
    if (r) numbers.push(r.initial, r.most, r.attempts);
    const behind = numbers.map((n) => " " + n).join("") + (r ? r.codes.map((c) => " " + quoted(c)).join("") : "") + (this.cancellable ? "" : " not cancellable");
    const extra = utf8Length(behind);
    this.size = natives.digest(this.payload + behind, hash.buffer) - extra;
    this.digest = hash.getBigUint64(0, true).toString(16);
    return this;
  }
}

const hash = new DataView(new ArrayBuffer(16));

/** The number of bytes of a text in UTF-8. */
export function utf8Length(text: string): number {
  return text === "" ? 0 : natives.digest(text, hash.buffer);
}

/** Identifies an input. */
export function inputDigest(input: string): string {
  natives.digest128(input, hash.buffer);
  return [0, 8].map((at) => hash.getBigUint64(at, true).toString(16).padStart(16, "0")).join("");
}

// A code in quotes, as strconv.Quote of Go writes it.
function quoted(code: string): string {
  const short: { [c: string]: string } = { "\x07": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v" };
  return `"${code.replace(/["\\\x00-\x1f\x7f]/g, (c) => c === '"' || c === "\\" ? "\\" + c : short[c] ?? "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0"))}"`;
}

/** Describes a step for people. */
export function stepText(kind: string, target: string, name: string): string {
  return kind + (target === "" ? "" : " " + target) + (name === "" ? "" : " " + name);
}

/** A child run that has not ended as far as its parent knows. */
export interface Child { step: number; type: string; id: string; close: string }

/** The run that has started a run; the token is empty for a run that is not a child. */
export interface Parent { type?: string; id?: string; token?: string }

/** A signal that no step has received yet; its value is JSON text. */
export interface Signalled { name: string; value: string; size: number }

// Thrown by steps in a function that must not act any more, because its run
// leaves memory, differs from its history, has ended or makes a checkpoint.
class Unloaded extends Error {
  constructor() {
    super("the function of the workflow has ended");
  }
}

/** What a run needs of its type. */
export interface FlowType {
  readonly name: string;
  /** Returns an error if the function cannot get an input. */
  unreadable(input: string): Rejection | undefined;
  call(flow: Flow, input: string): unknown;
}

/** A run in memory. */
export class Run implements clock.FlowClock {
  incarnation = 0;
  seed = 0n; // of the next random number
  parent: Parent = {};
  children: readonly Child[] = [];
  signals: readonly Signalled[] = [];
  signalBytes = 0;
  cancelled = false;

  halted = false; // the function must not act any more
  over = false; // the function has returned
  result = "";
  error?: Rejection;
  panicked = ""; // what the function has thrown, and where
  fault = ""; // how the function differs from the history

  made: Step[] = []; // asked for, and not in the history yet
  pending: Step[] = []; // in the history, without an outcome
  steps = 0;
  base = 0; // steps before the last checkpoint
  recorded = 0; // steps in the history
  bytes = 0; // of the history
  restart?: string; // a checkpoint that the history does not have yet

  paused = false; // until a command resumes the run
  idle = 0; // number of checkpoints in succession without an outcome, including the last one
  resuming = false; // that command is on its way
  now = 0n;
  events = 0; emitted = 0; sent = 0; timers = 0; // in the current command

  private started = false;
  private asks = 0; // since the function was resumed
  private askBytes = 0;
  private outcomes = 0; // since the last checkpoint
  private deferred: Step[] = []; // asked for, in a later command
  private questions: { id: string; answer: (has: boolean) => void }[] = [];
  private patches = new Map<string, boolean>(); // that the function has asked about
  private released: (() => void)[] = [];

  constructor(readonly type: FlowType, readonly id: string, readonly input: string, private readonly argument: string) {}

  milliseconds(): number { return Number(this.now / 1_000_000n); }

  random(): number { return Number(this.draw() >> 11n) / 2 ** 53; }

  /** The next number of the run's own sequence: splitmix64. */
  draw(): bigint {
    this.seed = BigInt.asUintN(64, this.seed + 0x9e3779b97f4a7c15n);
    let z = this.seed;
    z = BigInt.asUintN(64, (z ^ z >> 30n) * 0xbf58476d1ce4e5b9n);
    z = BigInt.asUintN(64, (z ^ z >> 27n) * 0x94d049bb133111ebn);
    return z ^ z >> 31n;
  }

  get patchCount(): number { return this.patches.size; }

  /** The patch that the function asks about, and that the history must tell next. */
  get patch(): string { return this.paused || this.questions.length === 0 ? "" : this.questions[0]!.id; }

  /** Whether the function has ended and everything it asked for is made. */
  get ended(): boolean { return this.over && !this.paused; }

  /**
   * Whether the run has made at least two checkpoints in succession without an
   * outcome between them.
   */
  get isIdle(): boolean { return this.paused && this.idle > 1 && this.steps === this.base; }

  private get inactive(): boolean { return this.halted || this.over || this.panicked !== "" || this.restart !== undefined; }

  /** Throws if the function must not act any more. */
  check(): void {
    if (this.inactive) throw new Unloaded();
  }

  /** Lets the function run until it awaits an outcome. */
  private run(act: () => void): void {
    const before = clock.enterFlow(this);
    try {
      act();
      natives.jobs();
    } finally {
      clock.enter(before);
    }
    if (this.inactive || this.questions.length > 0 || this.released.length > 0 || this.pending.length > 0) return;
    if (this.made.every(isSend) && this.deferred.every(isSend)) this.panicked = "the workflow awaits something that is not a step";
  }

  /** Starts the function. */
  start(now: bigint): void {
    this.started = true;
    this.asks = this.askBytes = 0;
    this.now = now;
    this.run(() => {
      let returned: unknown;
      try {
        returned = this.type.call(new Flow(this), this.argument);
      } catch (e) {
        this.threw(e);
        return;
      }
      Promise.resolve(returned).then((value) => this.returned(value), (e) => this.threw(e));
    });
  }

  private returned(value: unknown): void {
    if (this.inactive) return;
    try {
      this.result = json.write(value) ?? "";
      this.over = true;
    } catch (e) {
      this.panicked = summary(e);
    }
  }

  private threw(e: unknown): void {
    if (this.inactive) return;
    if (!(e instanceof Rejection)) {
      this.panicked = summary(e);
      return;
    }
    this.over = true;
    this.error = e;
  }

  /** Continues a paused run: with its first steps, or with those that it deferred. */
  resume(now: bigint): void {
    if (this.halted || !this.paused) return;
    this.paused = false;
    if (!this.started) {
      this.start(now);
      return;
    }
    this.asks = this.askBytes = 0;
    this.now = now;
    let n = 0;
    while (n < this.deferred.length && this.asks < maxAsks && this.askBytes < maxAskBytes) this.make(this.deferred[n++]!);
    this.deferred = this.deferred.slice(n);
    this.paused = this.deferred.length > 0;
    if (this.paused || this.released.length === 0) return;
    const released = this.released;
    this.released = [];
    this.run(() => { for (const go of released) go(); });
  }

  /** Ends the function without letting it act. */
  halt(): void {
    this.halted = true;
    this.made = this.deferred = [];
    this.questions = [];
  }

  /** Records the first difference between the function and the history. */
  differ(number: number, what: string): void {
    if (this.fault === "") {
      this.fault = `run ${this.id}, step ${number}: ${what}`;
      this.halt();
    }
  }

  /** Makes a step: at once, or in a later command if the run has to yield. */
  ask(step: Step): void {
    this.check();
    if (this.asks >= maxAsks || this.askBytes >= maxAskBytes) this.paused = true;
    if (this.steps + this.deferred.length - this.base >= maxSteps || this.bytes > maxHistoryBytes) {
      this.over = true;
      this.error = new Rejection(tooManySteps, `a run has at most ${maxSteps} steps and 8 MiB of history since its last checkpoint: call Flow.checkpoint`);
      throw new Unloaded();
    }
    if (this.paused) this.deferred.push(step);
    else this.make(step);
  }

  private make(step: Step): void {
    step.number = ++this.steps;
    this.asks++;
    this.askBytes += step.size;
    this.made.push(step);
  }

  /** Makes a step and returns the promise of its outcome. */
  await<R>(step: Step): Promise<R> {
    return new Promise<R>((resolve, reject) => {
      step.resolve = resolve;
      step.reject = reject;
      this.ask(step);
    });
  }

  /** Gives a pending step its outcome, which continues the function. */
  settle(steps: readonly Step[], now: bigint, code: string, message: string, value: string): void {
    this.pending = this.pending.filter((p) => !steps.includes(p));
    this.outcomes += steps.length;
    if (this.inactive || !this.started) return;
    if (!this.paused) this.asks = this.askBytes = 0;
    this.now = now;
    this.run(() => {
      for (const step of steps) {
        if (code !== "") {
          step.reject!(new Rejection(code, message));
          continue;
        }
        try {
          const decoded = value === "" ? undefined : json.value(value);
          step.resolve!(step.schema ? step.schema.read(decoded ?? {}, "") : decoded);
        } catch (e) {
          step.reject!(new Rejection(invalidPayload, (e as Error).message));
        }
      }
    });
  }

  /** The pending steps whose waits a cancellation ends. */
  get cancellable(): readonly Step[] { return this.pending.filter((p) => p.cancellable); }

  /** The pending step of a number. */
  find(number: number): Step | undefined { return this.pending.find((p) => p.number === number); }

  /**
   * Answers the question about a patch. A run that has the patch continues in
   * another command if it makes a step now, because the answer may come on top of
   * another event's.
   */
  decide(has: boolean, now: bigint): void {
    const id = this.patch;
    const asked = this.questions.filter((q) => q.id === id);
    this.questions = this.questions.filter((q) => q.id !== id);
    this.patches.set(id, has);
    if (has) {
      this.steps++;
      this.asks = maxAsks;
      this.now = now;
    }
    if (!this.inactive) this.run(() => { for (const q of asked) q.answer(has); });
  }

  /** Answers no to questions about patches, because the history continues without them. */
  lacks(): void {
    while (this.patch !== "" && this.made.length === 0 && !this.halted) this.decide(false, 0n);
  }

  /** Asks about a patch. */
  patched(id: string): Promise<boolean> {
    this.check();
    const has = this.patches.get(id);
    if (has !== undefined) return Promise.resolve(has);
    if (id === "" || utf8Length(id) > 255) throw new TypeError("the id of a patch has 1 to 255 bytes");
    if (!this.questions.some((q) => q.id === id) && this.patches.size + new Set(this.questions.map((q) => q.id)).size >= maxPatches) {
      throw new Error(`${this.type.name} asks about more than ${maxPatches} patches`);
    }
    return new Promise((answer) => this.questions.push({ id, answer }));
  }

  /** The child runs that the function may not start any more. */
  hasAllChildren(): boolean {
    const starting = [...this.made, ...this.deferred].filter((s) => s.kind === "run").length;
    return this.children.length + starting >= maxChildren;
  }

  async checkpoint(input: unknown): Promise<never> {
    this.check();
    const name = this.type.name;
    const open = [...this.made, ...this.deferred, ...this.pending].find((s) => s.kind === "call" || s.kind === "run");
    if (open) throw new Error(`a checkpoint of ${name} while step ${open.number || "to come"}, ${open.text}, has no outcome: await it`);
    const value = json.write(input) ?? "";
    const wrong = this.type.unreadable(value);
    if (wrong) throw new Error(`a checkpoint of ${name}: ${wrong.message}`);
    while (this.paused) await new Promise<void>((go) => this.released.push(go)); // for its sends
    this.check();
    const text = object(
      ["value", value], ["input", json.quote(this.input)], ["incarnation", String(this.incarnation)], ["random", String(this.seed)], ["step", String(this.steps)],
      ["cancelled", this.cancelled ? "true" : ""], ["idle", this.outcomes === 0 ? String(this.idle + 1) : ""],
      ["signals", list(this.signals.map((s) => object(["name", json.quote(s.name)], ["value", s.value])))],
      ["children", list(this.children.map(childText))],
      ["parent", parentText(this.parent)],
    );
    const size = utf8Length(text);
    if (size > maxCheckpoint) {
      throw new Rejection(checkpointTooLarge, `the checkpoint has ${size} bytes, of which ${utf8Length(value)} are the input, limit ${maxCheckpoint}`);
    }
    this.restart = text;
    return new Promise<never>(() => {}); // the history continues with another function
  }

  /** Counts the bytes of the history. */
  count(bytes: number): void { this.bytes += bytes; }

  /** Adds a signal that no step has received. */
  queue(name: string, value: string): void {
    const size = utf8Length(name) + utf8Length(value);
    this.signals = [...this.signals, { name, value, size }];
    this.signalBytes += size;
  }

  /** Removes the first queued signal of a name and returns its value. */
  take(name: string): string {
    const at = this.signals.findIndex((s) => s.name === name);
    const found = this.signals[at];
    if (!found) {
      this.differ(this.steps, `the history receives a signal ${name} that did not come`);
      return "";
    }
    this.signals = [...this.signals.slice(0, at), ...this.signals.slice(at + 1)];
    this.signalBytes -= found.size;
    return found.value;
  }

  /** The first step that waits for a queued signal. */
  receiver(): Step | undefined {
    return this.pending.find((p) => p.kind === "wait" && this.signals.some((s) => s.name === p.name));
  }

  /** Removes a child run that has ended. */
  left(step: number): void { this.children = this.children.filter((c) => c.step !== step); }
}

const isSend = (s: Step): boolean => s.kind === "send";

/** The text of a JSON object of texts; members with an empty text are omitted. */
export function object(...members: [name: string, text: string][]): string {
  return "{" + members.filter(([, text]) => text !== "").map(([name, text]) => `"${name}":${text}`).join(",") + "}";
}

function list(texts: string[]): string { return texts.length === 0 ? "" : `[${texts.join(",")}]`; }

/** A string in quotes, or nothing for an empty one. */
export function optionalText(text: string | undefined): string { return text ? json.quote(text) : ""; }

const childText = (c: Child): string => object(
  ["step", String(c.step)], ["type", json.quote(c.type)], ["id", json.quote(c.id)], ["close", json.quote(c.close)],
);

export const parentText = (p: Parent): string => object(
  ["type", optionalText(p.type)], ["id", optionalText(p.id)], ["token", optionalText(p.token)],
);

/**
 * The interface of a running workflow function to the host. Its steps return
 * promises, which Promise.all, Promise.race and their like combine. It is valid
 * only in the function that gets it.
 */
export class Flow {
  private readonly at: Run;

  /** For use by the SDK only. */
  constructor(run: Run) {
    this.at = run;
  }

  /** The run's id. */
  get id(): string { return this.at.id; }

  /**
   * The time of the command that the run continues with. A replay returns the
   * same. Date.now() and new Date() return it too.
   */
  get now(): Date {
    this.at.check();
    return new Date(this.at.milliseconds());
  }

  /** The same in nanoseconds since 1970. */
  get nanoseconds(): bigint {
    this.at.check();
    return this.at.now;
  }

  /**
   * Whether the run was cancelled. A cancellation rejects the steps that are
   * pending at that time with the code cancelled, unless they have the option
   * cancellable: false. Later steps work as usual, so that the function can undo
   * what it did.
   */
  get cancelled(): boolean {
    this.at.check();
    return this.at.cancelled;
  }

  /**
   * The next number of the run's own random sequence, in [0, 1), which a replay
   * repeats. Math.random() is the same. Not suitable for secrets.
   */
  random(): number {
    this.at.check();
    return this.at.random();
  }

  /** A version 4 UUID from the sequence of random. */
  uuid(): string {
    this.at.check();
    const id = new DataView(new ArrayBuffer(16));
    id.setBigUint64(0, this.at.draw(), true);
    id.setBigUint64(8, this.at.draw(), true);
    id.setUint8(6, id.getUint8(6) & 0x0f | 0x40);
    id.setUint8(8, id.getUint8(8) & 0x3f | 0x80);
    const hex = [0, 8].map((at) => id.getBigUint64(at).toString(16).padStart(16, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }

  /**
   * Sends a command to an entity and resolves with its reply. It rejects with a
   * Rejection of the entity's code. Without await, several calls run at the same
   * time.
   */
  call<R = any>(type: string, id: string, command: string, payload?: unknown, options: CallOptions<R> = {}): Promise<R> {
    const step = this.message("call", type, id, command, payload);
    if (options.retry) step.retry = new RetryPolicy(options.retry);
    if (options.reply) step.schema = options.reply;
    step.within = nanosecondsIn(options.within ?? 0);
    step.cancellable = options.cancellable ?? true;
    return this.made(step.sum(step.within));
  }

  /** Sends a command to an entity, and does not wait for its outcome. */
  send(type: string, id: string, command: string, payload?: unknown): void {
    const step = this.message("send", type, id, command, payload).sum();
    const large = tooLarge(step);
    if (large) throw large;
    this.at.ask(step);
  }

  /**
   * Starts a run of a workflow type as a child and resolves with its result. It
   * rejects with the code with which the child failed. The child may be of
   * another module. If its type declares sends, these must include the type of
   * the parent, because the child reports its end to it. Children may nest 32
   * deep: a deeper one fails with too_deep. An id that was used before fails with
   * already_started.
   */
  run<R = any>(type: string, id: string, input?: unknown, options: RunOptions<R> = {}): Promise<R> {
    const step = this.message("run", type, id, "", input);
    step.close = options.onParentEnd ?? "terminate";
    if (!["terminate", "cancel", "abandon"].includes(step.close)) throw new TypeError(`onParentEnd must be terminate, cancel or abandon, got ${JSON.stringify(step.close)}`);
    if (options.result) step.schema = options.result;
    step.within = nanosecondsIn(options.within ?? 0);
    step.cancellable = options.cancellable ?? true;
    return this.made(step.sum(step.within, step.close.length));
  }

  /** Waits. It rejects only if the run is cancelled. */
  sleep(length: Duration): Promise<void> {
    this.at.check();
    const by = nanosecondsIn(length);
    const step = new Step("sleep", "", "", "", "");
    step.due = later(this.at.now, by > 0n ? by : 0n);
    return this.at.await(step.sum(by));
  }

  /** Waits until a time. It rejects only if the run is cancelled. */
  sleepUntil(at: Instant): Promise<void> {
    this.at.check();
    const step = new Step("sleep", "", "", "", "");
    step.due = nanosecondsOf(at);
    if (step.due < 0n) throw new TypeError("sleepUntil needs a time after 1970");
    return this.at.await(step.sum(1, step.due));
  }

  /**
   * Waits for the next signal of a name. Signals that came before are queued, in
   * order.
   */
  wait<T = any>(signal: string, options: WaitOptions<T> = {}): Promise<T> {
    this.at.check();
    const step = new Step("wait", "", "", signal, "");
    if (options.schema) step.schema = options.schema;
    step.within = nanosecondsIn(options.within ?? 0);
    step.cancellable = options.cancellable ?? true;
    return this.at.await(step.sum(step.within));
  }

  /**
   * Whether the run has the patch with an id, so that one function can continue
   * runs from before and after a change:
   *
   *     if (await f.patched("new-limits")) {
   *       // as it is now
   *     } else {
   *       // as it was
   *     }
   *
   * A run has the patch if it had not come to this place when the module with the
   * patch began to serve; its history records that. A run asks about at most 32
   * patches.
   */
  patched(id: string): Promise<boolean> { return this.at.patched(id); }

  /**
   * Ends the function and starts it again with another input. It never resolves,
   * and rejects with checkpoint_too_large if there is too much to store. The run
   * keeps its id, the signals that it has not received, and cancelled; its
   * history so far is not needed any more:
   *
   *     return f.checkpoint(next);
   *
   * Await all calls and child runs first. Other steps without an outcome are
   * dropped.
   */
  checkpoint(input: unknown): Promise<never> { return this.at.checkpoint(input); }

  private message(kind: StepKind, type: string, id: string, command: string, payload: unknown): Step {
    this.at.check();
    const text = payload === undefined ? "" : json.write(payload);
    if (text === undefined) throw new TypeError(`the payload of ${command} for ${type} is a value that JSON cannot express`);
    return new Step(kind, type, id, command, text);
  }

  private made<R>(step: Step): Promise<R> {
    const refused = tooLarge(step)
      ?? (step.kind === "run" && this.at.hasAllChildren() ? new Rejection(tooManyChildren, `the run has ${maxChildren} child runs that have not ended`) : undefined);
    return refused ? Promise.reject(refused) : this.at.await(step);
  }
}

function tooLarge(step: Step): Rejection | undefined {
  if (step.size > maxPayloadBytes) {
    return new Rejection(payloadTooLarge, `${step.name} for ${step.type} has a payload of ${step.size} bytes, limit ${maxPayloadBytes}`);
  }
  if (step.kind === "run" && step.size > maxStepBytes) {
    return new Rejection(payloadTooLarge, `the input of the child run has ${step.size} bytes, limit ${maxStepBytes}`);
  }
  return undefined;
}

/** Whether an error says that a value is not what its reader needs. */
export function isUnreadable(e: unknown): e is Error { return e instanceof SyntaxError || e instanceof Misfit; }
