import { type Context, nanosecondsOf } from "./context.js";
import { Definition, type Runs, type TypeOptions } from "./entity.js";
import {
  cancelled, type Child, deadlineExceeded, type Flow, type FlowType, inputDigest, isUnreadable, maxAsks, maxPatches, maxStepBytes, object, optionalText,
  type Parent, parentText, resultTooLarge, Run, type Step, stepText, utf8Length,
} from "./flow.js";
import * as frames from "./frames.js";
import * as json from "./json.js";
import { invalidPayload, Rejection } from "./reject.js";
import { any, integer, none, optional, type Schema, schema, text } from "./schema.js";
import { Fault } from "./trace.js";

const { input, output } = frames;

/** How the host treats the runs of a workflow type. Every option may be omitted. */
export type WorkflowOptions = Pick<TypeOptions<unknown>, "passivateAfter" | "recordPrincipal" | "shardKey" | "sends" | "acceptsFrom" | "validate">;

// Events of a run that the host knows.
const eventEnded = "ended";
const eventCheckpoint = "checkpointed";

// Commands that only the host and the run itself send.
const commandCame = "hostd-came";
const commandFailed = "hostd-failed";
const commandWoken = "hostd-woken";
const commandResume = "hostd-resume";
const commandRun = "hostd-run"; // starts a child
const commandChild = "hostd-child"; // reports the end of a child to its parent
const commandParent = "hostd-parent"; // reports the end of a parent to its child
const commandEnd = "hostd-end"; // ends the run, because it exceeds a limit of the node

// The timer that resumes a run after an idle checkpoint.
const timerResume = "resume";

const terminated = "terminated";
const stepPatch = "patch";

const mostSignals = 1000;
const mostSignalBytes = 1 << 20;
const mostNameBytes = 255;
const mostWaits = 8; // in a progress frame

// The snapshot of a run that was not started.
const emptyRun = `{"status":"","steps":0}`;

/** The state of a run. */
class State {
  status = "";
  steps = 0;
  result = ""; // JSON text
  code = "";
  message = "";
  run?: Run;
  input = ""; // digest of the run's input

  constructor(readonly id: string) {}

  get isOpen(): boolean { return this.run !== undefined && this.status === "running"; }
}

const stateSchema = schema({
  status: text({ description: "running, completed or failed; empty before the run starts" }),
  steps: "integer",
  waitsFor: optional(["string"]),
  result: optional(any()),
  code: optional(text({ description: "of the error of a failed run" })),
  message: "string?",
  ahead: "string?",
});
const signalSchema = schema({ name: "string", value: optional(any()) });
const parentSchema = schema({ type: "string?", id: "string?", token: "string?" });
const endSchema = schema({ code: "string?", message: "string?" }); // payload of commandEnd
const childSchema = schema({ step: "integer", type: "string", id: "string", close: "string" });
// Numbers of 64 bits that only the SDK reads.
const word: Schema<unknown> = { ...any(), render: () => ({ type: ["integer", "string"], format: "uint64" }) };

const events = {
  began: schema({ input: optional(any()), incarnation: word, seed: word, parent: parentSchema }),
  [eventCheckpoint]: schema({
    value: optional(any()), input: "string", incarnation: word, random: word, step: "integer", cancelled: "boolean?", idle: "integer?",
    signals: optional([signalSchema]), children: optional([childSchema]), parent: parentSchema,
  }),
  asked: schema({ step: "integer", kind: "string", target: "string?", name: "string?", digest: "string", close: "string?" }),
  left: schema({ step: "integer" }),
  came: schema({ step: "integer", code: "string?", message: "string?", value: optional(any()), signal: "boolean?" }),
  retried: schema({ step: "integer", attempt: "integer", code: "string", message: "string?" }),
  signalled: signalSchema,
  cancelled: schema({}),
  resumed: schema({}),
  [eventEnded]: schema({ result: optional(any()), code: "string?", message: "string?" }),
} satisfies { [type: string]: Schema<unknown> };

// The member of an object's text that comes first, and the text of the object
// without it. The texts of values are kept as they are, because a digest of them
// may be stored.
function first(encoded: string, name: string, next: string): [value: string, rest: string] {
  const start = `{"${name}":`;
  if (!encoded.startsWith(start)) return ["", encoded];
  const end = encoded.lastIndexOf(`,"${next}":`); // no later member contains it unescaped
  return end < 0 ? [encoded.slice(start.length, -1), "{}"] : [encoded.slice(start.length, end), "{" + encoded.slice(end + 1)];
}

// The same for the last member. No earlier member contains its name unescaped.
function last(encoded: string, name: string): [value: string, rest: string] {
  const key = `,"${name}":`;
  const at = encoded.indexOf(key);
  return at < 0 ? ["", encoded] : [encoded.slice(at + key.length, -1), encoded.slice(0, at) + "}"];
}

// The encoded member of a payload that another module wrote, in any order.
function member(payload: string, name: string): [value: string, members: Record<string, unknown>] {
  let members: unknown;
  try {
    members = json.value(payload);
  } catch (e) {
    throw new Rejection(invalidPayload, (e as Error).message);
  }
  if (typeof members !== "object" || members === null || Array.isArray(members)) throw new Rejection(invalidPayload, "the payload must be an object");
  const value = (members as Record<string, unknown>)[name];
  if (value === undefined) return ["", members as Record<string, unknown>];
  const written = json.write(value)!;
  const compact = json.compact(payload);
  for (const [found] of [first(compact, name, "token"), last(compact, name)]) {
    try {
      if (found !== "" && json.write(json.value(found)) === written) return [found, members as Record<string, unknown>];
    } catch {
      // The member is somewhere else.
    }
  }
  return [written, members as Record<string, unknown>];
}

// The members of the payload, which are none if it is not an object.
function membersOf(): Record<string, unknown> {
  try {
    return Object(frames.json(input.payload)) as Record<string, unknown>;
  } catch (e) {
    if (isUnreadable(e)) return {};
    throw e;
  }
}

const textOf = (value: unknown): string => typeof value === "string" ? value : "";

function hexBytes(value: bigint, bytes: number): string {
  let out = "";
  for (let i = 0; i < bytes; i++) out += (value >> BigInt(8 * i) & 0xffn).toString(16).padStart(2, "0");
  return out;
}

// Identifies a child run of a run.
function childToken(r: Run, step: number): string {
  return hexBytes(BigInt(r.incarnation), 8) + hexBytes(BigInt(step), 4) + hexBytes(1n, 4);
}

// The pending step and attempt that the token of a command identifies.
function named(r: Run): Step | undefined {
  const incarnation = frames.uint32(input.token, 4) * 2 ** 32 + frames.uint32(input.token, 0);
  if (frames.size(input.token) !== 16 || incarnation !== r.incarnation) return undefined;
  const step = r.find(frames.uint32(input.token, 8));
  return step?.attempt === frames.uint32(input.token, 12) ? step : undefined;
}

// The timers of a step: for its time limit or its end, and for its next attempt.
const dueTimer = (s: Step): string => `due-${s.number}`;
const retryTimer = (s: Step): string => `retry-${s.number}`;

// Cancels the timers of steps that have an outcome.
function cancelTimers(c: Context, r: Run, steps: readonly Step[]): void {
  for (const s of steps.slice(0, 16)) { // a timer that is left wakes a step that is not pending
    if (s.kind === "sleep" || s.within > 0n) {
      c.cancelTimer(dueTimer(s));
      r.timers++;
    }
    if (s.retry && s.attempt > 1) {
      c.cancelTimer(retryTimer(s));
      r.timers++;
    }
  }
}

function setTimer(c: Context, r: Run, name: string, due: bigint, step: Step, attempt = 0): void {
  c.setTimer(name, due, commandWoken, { incarnation: r.incarnation, step: step.number, ...(attempt > 0 ? { attempt } : {}) });
}

function send(type: string, id: string, command: string, payload: string): void {
  const frame = frames.start(output.send);
  for (const part of [type, id, command]) frames.field(part);
  frames.put(payload);
  frames.end(frame);
}

// Sends the command of a step, whose outcome comes back with its token.
function sendStep(r: Run, s: Step, command: string, payload: string): void {
  r.sent += utf8Length(payload) + 256;
  const frame = frames.start(output.sendWithToken);
  for (const part of [s.type, s.id, command, commandCame, commandFailed]) frames.field(part);
  frames.putUint16(16);
  frames.putUint32(r.incarnation >>> 0);
  frames.putUint32(Math.floor(r.incarnation / 2 ** 32));
  frames.putUint32(s.number);
  frames.putUint32(s.attempt);
  frames.put(payload);
  frames.end(frame);
}

// Ends the instance: the run stays open until a module serves that can continue
// it.
function fail(what: string): never { throw new Fault(what); }

// What the history waits for.
function waits(r: Run): string {
  const newest = r.pending[r.pending.length - 1];
  return newest ? newest.text : "nothing";
}

// What the function has done and the history does not have.
function ahead(r: Run): string {
  if (r.made.length > 0) return `run ${r.id}, step ${r.made[0]!.number}: the code asks for ${r.made[0]!.text}, the history ends there`;
  if (r.restart !== undefined) return `run ${r.id}, step ${r.steps + 1}: the code makes a checkpoint, the history ends there`;
  if (r.ended) return `run ${r.id}, step ${r.steps + 1}: the code returns, the history waits for ${waits(r)}`;
  return "";
}

// Throws if the function differs from the history, and returns what it has done
// in addition. That is a difference only at the end of the history, which only
// the host knows.
function prepare(s: State): string {
  const r = s.run;
  if (!r || s.status !== "running") return "";
  if (r.fault === "" && r.panicked !== "") r.fault = `run ${r.id}, step ${r.steps}: ${r.panicked}`;
  if (r.fault !== "") fail(r.fault);
  s.steps = r.steps;
  return ahead(r);
}

// The same at the end of the history.
function settled(s: State): void {
  const more = prepare(s);
  if (more !== "") fail(more);
}

function stateText(s: State, more: string): string {
  const pending = s.isOpen ? s.run!.pending : [];
  return object(
    ["status", json.quote(s.status)], ["steps", String(s.steps)],
    ["waitsFor", pending.length === 0 ? "" : `[${pending.slice(0, 16).map((p) => json.quote(p.text)).join(",")}]`],
    ["result", s.result], ["code", optionalText(s.code)], ["message", optionalText(s.message)], ["ahead", optionalText(more)],
  );
}

// The state for a reply.
function seen(s: State): json.Raw {
  settled(s);
  return new json.Raw(stateText(s, ""));
}

function mustBeOpen(s: State): Run {
  if (s.status === "") throw new Rejection("not_started", "there is no run of this id: start it");
  if (!s.isOpen) throw new Rejection("ended", "the run has ended: it is " + s.status);
  return s.run!;
}

interface Ended { result: string; code: string; message: string }

/** A workflow type, as workflow returns it. */
export class WorkflowType {
  /** For use by the SDK only. */
  readonly definition: Definition;

  constructor(name: string, given: Schema<any> | undefined, run: (f: Flow, input: any) => unknown, options: WorkflowOptions) {
    this.definition = new Definition(name, "workflow", { ...options, state: stateSchema });
    new RunType(this.definition, given, run);
  }
}

/** What the runs of a type do. Live runs and replays evolve by events alone. */
class RunType implements FlowType, Runs {
  constructor(private readonly definition: Definition, private readonly schema: Schema<any> | undefined, private readonly body: (f: Flow, input: any) => unknown) {
    definition.runs = this;
    for (const [type, of] of Object.entries(events)) definition.addEvent(type, { schema: of, evolve: () => {} });
    this.commands();
  }

  get name(): string { return this.definition.name; }

  call(flow: Flow, given: string): unknown { return this.body(flow, this.decode(given)); }

  private decode(given: string): unknown {
    try {
      const value = given === "" ? undefined : json.value(given);
      return this.schema ? this.schema.read(value ?? {}, "") : value;
    } catch (e) {
      if (isUnreadable(e)) throw new Rejection(invalidPayload, e.message);
      throw e;
    }
  }

  unreadable(given: string): Rejection | undefined {
    try {
      this.decode(given);
    } catch (e) {
      if (e instanceof Rejection) return e;
      throw e;
    }
    return undefined;
  }

  // Loads a run from the payload of its last checkpoint. The host makes no other
  // snapshots of runs, but tools load that of a run that was not started.
  load(id: string, checkpoint: string | undefined): State | undefined {
    const s = new State(id);
    if (checkpoint === undefined || checkpoint === emptyRun) return s;
    try {
      this.apply(s, eventCheckpoint, checkpoint, 0n);
    } catch (e) {
      if (isUnreadable(e) || e instanceof TypeError) return undefined;
      throw e;
    }
    return s;
  }

  text(s: State): string {
    const more = prepare(s);
    return stateText(s, more);
  }

  progress(s: State): void {
    const frame = frames.start(output.progress);
    if (s.isOpen) {
      frames.putUint32(s.run!.steps);
      for (const p of s.run!.pending.slice(0, mostWaits)) frames.field(p.text);
    } else {
      frames.putUint32(s.steps);
    }
    frames.end(frame);
  }

  release(s: State): void {
    s.run?.halt();
    delete s.run;
  }

  apply(s: State, type: string, payload: string, at: bigint): void {
    switch (type) {
      case "began": {
        const [given, rest] = first(payload, "input", "incarnation");
        const e = json.value(rest) as { incarnation: number; seed: number | bigint; parent?: Parent };
        this.release(s);
        const r = this.open(s, given, inputDigest(given), e.incarnation, e.seed, e.parent);
        r.count(utf8Length(given));
        r.start(at);
        return;
      }
      case eventCheckpoint:
        this.restart(s, payload);
        return;
      case "asked":
        this.asked(s, json.value(payload) as Asked, at);
        return;
      case "left": {
        const e = json.value(payload) as { step: number };
        s.run?.left(e.step);
        this.on(s, 16);
        return;
      }
      case "came":
        this.came(s, payload, at);
        return;
      case "retried": {
        const e = json.value(payload) as { step: number; attempt: number; message?: string };
        const step = this.on(s, 64 + utf8Length(e.message ?? ""))?.find(e.step);
        if (step) step.attempt = e.attempt;
        return;
      }
      case "signalled": {
        const [value, rest] = last(payload, "value");
        const { name } = json.value(rest) as { name: string };
        this.on(s, 32 + utf8Length(name) + utf8Length(value))?.queue(name, value);
        return;
      }
      case "cancelled": {
        const r = this.on(s, 16);
        if (!r) return;
        r.cancelled = true;
        r.settle(r.cancellable, at, cancelled, "the run was cancelled", "");
        return;
      }
      case "resumed":
        this.on(s, 16)?.resume(at);
        return;
      case eventEnded: {
        const e = json.value(payload) as { code?: string; message?: string };
        if (s.run) s.steps = s.run.recorded;
        this.release(s);
        s.result = payload.startsWith(`{"result":`) ? payload.slice(`{"result":`.length, -1) : ""; // it has no other member then
        s.code = e.code ?? "";
        s.message = e.message ?? "";
        s.status = s.code === "" ? "completed" : "failed";
        return;
      }
    }
    throw new Error(`${this.name}: event type ${type} is not declared`);
  }

  private open(s: State, argument: string, digest: string, incarnation: number, seed: number | bigint, parent: Parent = {}): Run {
    const r = new Run(this, s.id, digest, argument);
    r.incarnation = incarnation;
    r.seed = BigInt(seed);
    r.parent = parent;
    s.run = r;
    s.status = "running";
    s.steps = 0;
    s.result = s.code = s.message = "";
    s.input = digest;
    return r;
  }

  // What the function did before a checkpoint is not compared, so that a replay
  // gives the same result wherever it begins. The function starts when the run is
  // resumed.
  private restart(s: State, payload: string): void {
    const e = json.value(payload) as {
      value?: unknown; input: string; incarnation: number; random: number | bigint; step: number; cancelled?: boolean; idle?: number;
      signals?: { name: string; value?: unknown }[]; children?: Child[]; parent?: Parent;
    };
    if (typeof e.input !== "string" || !Number.isSafeInteger(e.step)) throw new TypeError("the checkpoint is not readable");
    this.release(s);
    const argument = e.value === undefined ? "" : json.write(e.value)!;
    const r = this.open(s, argument, e.input, e.incarnation, e.random, e.parent);
    r.cancelled = e.cancelled ?? false;
    r.children = e.children ?? [];
    r.steps = r.recorded = r.base = s.steps = e.step;
    r.paused = true;
    r.idle = e.idle ?? 0;
    const wrong = this.unreadable(argument); // the function starts later, maybe after this module has replaced another
    if (wrong) r.differ(e.step + 1, `the code cannot read the input of the checkpoint: ${wrong.message}`);
    r.count(utf8Length(argument));
    for (const q of e.signals ?? []) {
      const value = q.value === undefined ? "" : json.write(q.value)!;
      r.queue(q.name, value);
      r.count(utf8Length(q.name) + utf8Length(value));
    }
  }

  // The run of an event that comes after everything that its function has asked
  // for; undefined if the function differs from the history.
  private on(s: State, bytes: number): Run | undefined {
    const r = s.run;
    if (!r || r.halted) return undefined;
    r.count(bytes);
    r.lacks();
    const m = r.made[0];
    if (m) r.differ(m.number, `the code asks for ${m.text}, the history has none`);
    else if (r.restart !== undefined) r.differ(r.steps + 1, "the code makes a checkpoint, the history has none");
    return r.halted ? undefined : r;
  }

  private asked(s: State, e: Asked, at: bigint): void {
    const r = s.run;
    if (!r) return;
    const target = e.target ?? "", name = e.name ?? "";
    if (e.kind === "run") { // whatever the function does, so that terminate knows it
      const cut = target.indexOf("/");
      r.children = [...r.children, { step: e.step, type: target.slice(0, cut), id: target.slice(cut + 1), close: e.close ?? "" }];
    }
    r.recorded = e.step;
    if (r.halted) return;
    r.count(64 + utf8Length(target) + utf8Length(name));
    const want = stepText(e.kind, target, name);
    while (r.patch !== "" && r.made.length === 0 && !r.halted) {
      if (e.kind === stepPatch && name === r.patch && e.step === r.steps + 1) {
        r.decide(true, at);
        return;
      }
      r.decide(false, 0n);
    }
    if (r.halted) return;
    const m = r.made[0];
    if (r.panicked !== "") r.differ(e.step, `${r.panicked}, the history has ${want}`);
    else if (!m && r.ended) r.differ(e.step, `the code returns, the history has ${want}`);
    else if (!m && r.restart !== undefined) r.differ(e.step, `the code makes a checkpoint, the history has ${want}`);
    else if (!m) r.differ(e.step, `the code waits for ${waits(r)}, the history has ${want}`);
    else if (m.number !== e.step || m.text !== want) r.differ(e.step, `the code asks for ${m.text}, the history has ${want}`);
    else if (m.digest !== e.digest) r.differ(e.step, `the code asks for ${want} with another payload or time than the history has`);
    if (!m || r.halted) return;
    r.made.shift();
    m.attempt = 1;
    if (m.kind !== "send") r.pending.push(m);
  }

  private came(s: State, payload: string, at: bigint): void {
    let [value, rest] = last(payload, "value");
    const e = json.value(rest) as { step: number; code?: string; message?: string; signal?: boolean };
    const code = e.code ?? "", message = e.message ?? "";
    if (code !== deadlineExceeded) s.run?.left(e.step);
    const r = this.on(s, 64 + utf8Length(value) + utf8Length(message));
    if (!r) return;
    const p = r.find(e.step);
    if (!p) {
      r.differ(e.step, `the history has an outcome, the code waits for ${waits(r)}`);
      return;
    }
    if (e.signal) value = r.take(p.name);
    if (!r.halted) r.settle([p], at, code, message, value);
  }

  private commands(): void {
    const reply = stateSchema;
    const add = (name: string, schema: Schema<unknown>, run: (c: Context, s: State) => json.Raw | void): void => (
      this.definition.addHandler("command", name, { schema, reply, internal: false, encoded: true, run })
    );
    const internal = (name: string, run: (c: Context, s: State) => void): void => (
      this.definition.addHandler("command", name, { internal: true, encoded: true, run })
    );
    add("start", this.schema ?? any(), (c, s) => this.started(c, s));
    add("signal", signalSchema, (c, s) => this.signalled(c, s));
    add("cancel", none, (c, s) => {
      mustBeOpen(s);
      this.cancel(c, s);
      return seen(s);
    });
    add("terminate", none, (c, s) => {
      // This also works for runs whose function cannot continue.
      this.finish(c, s, mustBeOpen(s), { result: "", code: terminated, message: "the run was terminated" });
      return seen(s);
    });
    internal(commandCame, (c, s) => this.outcome(c, s, "", "", frames.text(input.payload), frames.size(input.payload)));
    internal(commandFailed, (c, s) => {
      const why = membersOf();
      const code = textOf(why["code"]);
      if (code === "") this.outcome(c, s, "internal", "the rejection cannot be read", "", 0);
      else this.outcome(c, s, code, textOf(why["message"]), "", 0);
    });
    internal(commandWoken, (c, s) => this.woken(c, s));
    internal(commandRun, (c, s) => this.startChild(c, s));
    internal(commandChild, (c, s) => this.childEnded(c, s));
    internal(commandParent, (c, s) => this.parentEnded(c, s));
    internal(commandEnd, (c, s) => this.endedByNode(c, s));
    internal(commandResume, (c, s) => {
      const r = this.ready(c, s);
      if (!r) return;
      r.resuming = false;
      if (r.paused) this.emit(c, s, r, "resumed", "{}", 0);
      this.proceed(c, s);
    });
    this.definition.addHandler("query", "state", { schema: none, reply, internal: false, encoded: true, run: (_, s: State) => seen(s) });
  }

  // Starts the run, or returns the one that has the same input.
  private started(c: Context, s: State): json.Raw {
    const given = this.given();
    if (s.status === "") this.begin(c, s, given, {});
    else if (s.input !== inputDigest(given)) throw new Rejection("already_started", "a run of this id has another input");
    return seen(s);
  }

  private given(): string { return json.compact(frames.text(input.payload)); }

  private begin(c: Context, s: State, given: string, parent: Parent): void {
    if (utf8Length(given) > maxStepBytes) throw new Rejection("input_too_large", "the input of a run has at most 48 KiB");
    const wrong = this.unreadable(given);
    if (wrong) throw wrong;
    this.write(c, s, "began", object(
      ["input", given], ["incarnation", String(c.sequence)], ["seed", String(frames.uint64Exact(input.seed))], ["parent", parentText(parent)],
    ));
    const r = s.run!;
    this.counts(r);
    r.events++;
    this.proceed(c, s);
  }

  private counts(r: Run): void { r.events = r.emitted = r.sent = r.timers = 0; }

  // Begins a command of an open run. A run whose history was made without a patch
  // that its function asks about gets the patch now, before the command has an
  // effect. It returns undefined if the run is not open, or if that ends it.
  private ready(c: Context, s: State): Run | undefined {
    if (!s.isOpen) return undefined;
    settled(s);
    this.counts(s.run!);
    if (s.run!.patch !== "") this.proceed(c, s);
    return s.isOpen ? s.run : undefined;
  }

  private signalled(c: Context, s: State): json.Raw {
    const r = mustBeOpen(s);
    settled(s);
    const [value, { name }] = member(frames.text(input.payload), "value");
    if (typeof name !== "string" || name === "" || utf8Length(name) > mostNameBytes) throw new Rejection("invalid_signal", "a signal has a name of at most 255 bytes");
    const size = utf8Length(value);
    if (size > maxStepBytes) throw new Rejection("signal_too_large", "the value of a signal has at most 48 KiB");
    if (r.signals.length >= mostSignals || r.signalBytes + utf8Length(name) + size > mostSignalBytes) {
      throw new Rejection("resource_exhausted", "the run has not received its last signals yet: at most 1,000 and 1 MiB wait");
    }
    const ready = this.ready(c, s);
    if (!ready) return seen(s);
    this.emit(c, s, ready, "signalled", object(["name", json.quote(name)], ["value", value]), size);
    this.proceed(c, s);
    return seen(s);
  }

  // Writes an event and applies it.
  private write(c: Context, s: State, type: string, payload: string): void {
    const frame = frames.start(output.event);
    frames.field(type);
    frames.put(payload);
    frames.end(frame);
    this.apply(s, type, payload, c.nanoseconds);
  }

  private emit(c: Context, s: State, r: Run, type: string, payload: string, bytes: number): void {
    r.events++;
    r.emitted += bytes + 256;
    this.write(c, s, type, payload);
  }

  private emitCame(c: Context, s: State, r: Run, step: number, code = "", message = "", value = ""): void {
    this.emit(c, s, r, "came", object(["step", String(step)], ["code", optionalText(code)], ["message", optionalText(message)], ["value", value]),
      utf8Length(message) + utf8Length(value));
  }

  private emitLeft(c: Context, s: State, r: Run, step: number): void {
    this.emit(c, s, r, "left", object(["step", String(step)]), 0);
  }

  // Whether the current command has room for another outcome and the steps that
  // the function may ask for after it: a command emits at most 128 events, 128
  // timers, and 256 KiB of events and of sends.
  private fits(r: Run): boolean {
    return r.events + maxAsks + maxPatches - r.patchCount + 2 < 128 && r.emitted < 128 << 10 && r.sent < 56 << 10 && r.timers < 24;
  }

  // Records what the function has done since it was resumed: its steps, the
  // outcomes that are there already, and its end.
  private proceed(c: Context, s: State): void {
    const r = s.run!;
    for (;;) {
      if (r.panicked !== "") fail(`run ${r.id}, step ${r.steps}: ${r.panicked}`);
      for (let m = r.made[0]; m; m = r.made[0]) {
        this.emit(c, s, r, "asked", object(
          ["step", String(m.number)], ["kind", json.quote(m.kind)], ["target", optionalText(m.target)], ["name", optionalText(m.name)],
          ["digest", json.quote(m.digest)], ["close", optionalText(m.close)],
        ), utf8Length(m.type) + utf8Length(m.id) + utf8Length(m.name));
        if (r.fault !== "") fail(r.fault);
        this.carryOut(c, r, m);
      }
      if (r.ended) {
        this.end(c, s, r);
        return;
      }
      if (r.patch !== "") {
        this.emit(c, s, r, "asked", object(["step", String(r.steps + 1)], ["kind", json.quote(stepPatch)], ["name", json.quote(r.patch)], ["digest", `""`]), utf8Length(r.patch));
        continue;
      }
      if (r.restart !== undefined) {
        cancelTimers(c, r, r.pending);
        this.emit(c, s, r, eventCheckpoint, r.restart, 0);
        this.pause(c, s.run!);
        return;
      }
      const p = r.receiver();
      if (!r.paused && !p) return;
      if (r.paused || !this.fits(r)) {
        this.pause(c, r);
        return;
      }
      this.emit(c, s, r, "came", object(["step", String(p!.number)], ["signal", "true"]), 0);
      cancelTimers(c, r, [p!]);
    }
  }

  // Sends the run the command that resumes it. If the run makes checkpoints in a
  // loop that waits for nothing, a timer sends the command later instead, so that
  // the loop does not fill the disk.
  private pause(c: Context, r: Run): void {
    if (r.resuming) return;
    r.resuming = true;
    if (!r.isIdle) {
      send(this.name, r.id, commandResume, "");
      return;
    }
    const seconds = Math.min(2 ** Math.min(r.idle - 2, 6), 60);
    c.setTimer(timerResume, nanosecondsOf(c.nanoseconds + BigInt(seconds) * 1_000_000_000n), commandResume);
    r.timers++;
  }

  private end(c: Context, s: State, r: Run): void {
    let e: Ended = { result: r.result, code: "", message: "" };
    const size = utf8Length(r.result);
    if (size > maxStepBytes) e = { result: "", code: resultTooLarge, message: `the result of the run has ${size} bytes, limit ${maxStepBytes}` };
    if (r.error) e = { result: "", code: r.error.code === "" ? "error" : r.error.code, message: shortened(r.error.message) };
    this.finish(c, s, r, e);
  }

  // Ends the run, and reports that to its children and to its parent.
  private finish(c: Context, s: State, r: Run, e: Ended): void {
    cancelTimers(c, r, r.pending);
    if (r.isIdle) c.cancelTimer(timerResume);
    for (const child of r.children) {
      if (child.close === "abandon") continue;
      send(child.type, child.id, commandParent, object(["token", json.quote(childToken(r, child.step))], ["close", json.quote(child.close)]));
    }
    const { type, id, token } = r.parent;
    const ended: [string, string][] = [["code", optionalText(e.code)], ["message", optionalText(e.message)], ["result", e.result]];
    if (token) send(type ?? "", id ?? "", commandChild, object(["token", json.quote(token)], ...ended));
    this.write(c, s, eventEnded, object(ended[2]!, ended[0]!, ended[1]!));
  }

  private carryOut(c: Context, r: Run, s: Step): void {
    switch (s.kind) {
      case "send":
        r.sent += s.size + 256;
        send(s.type, s.id, s.name, s.payload);
        return;
      case "call":
        sendStep(r, s, s.name, s.payload);
        break;
      case "run": // its outcome matters only if it is a rejection, because the child reports its end
        sendStep(r, s, commandRun, object(["input", s.payload], ["token", json.quote(childToken(r, s.number))]));
        break;
      case "sleep":
        setTimer(c, r, dueTimer(s), s.due, s);
        r.timers++;
    }
    if (s.kind !== "sleep" && s.within > 0n) {
      setTimer(c, r, dueTimer(s), nanosecondsOf(c.nanoseconds + s.within), s);
      r.timers++;
    }
  }

  // Records the outcome of a call. An outcome of a step that is not pending has no
  // effect: the run has stopped waiting for it, or it is of an earlier run or
  // attempt.
  private outcome(c: Context, s: State, code: string, message: string, value: string, size: number): void {
    const r = this.ready(c, s);
    const p = r && named(r);
    if (!r || !p || p.kind !== "call" && (p.kind !== "run" || code === "")) return;
    if (size > maxStepBytes) {
      [code, message, value] = [resultTooLarge, `the outcome has ${size} bytes, limit ${maxStepBytes}`, ""];
    } else if (value !== "") {
      try {
        json.value(value);
        value = json.compact(value);
      } catch (e) {
        if (!isUnreadable(e)) throw e;
        [code, message, value] = [invalidPayload, "the outcome is not JSON", ""];
      }
    }
    const wait = code === "" ? undefined : p.retry?.wait(p.attempt, code);
    if (wait !== undefined) {
      const { attempt } = p;
      this.emit(c, s, r, "retried", object(
        ["step", String(p.number)], ["attempt", String(attempt + 1)], ["code", json.quote(code)], ["message", optionalText(message)],
      ), utf8Length(message));
      setTimer(c, r, retryTimer(p), nanosecondsOf(c.nanoseconds + wait), p, p.attempt);
    } else {
      cancelTimers(c, r, [p]);
      this.forget(c, s, r, p, code);
      this.emitCame(c, s, r, p.number, code, message, value);
    }
    this.proceed(c, s);
  }

  // Handles a timer of the run.
  private woken(c: Context, s: State): void {
    const by = membersOf();
    const r = this.ready(c, s);
    const p = r?.find(by["step"] as number);
    const attempt = by["attempt"] ?? 0;
    if (!r || !p || by["incarnation"] !== r.incarnation || attempt !== 0 && attempt !== p.attempt) return;
    if (attempt !== 0) {
      sendStep(r, p, p.name, p.payload);
      return;
    }
    if (p.kind === "sleep") {
      this.emitCame(c, s, r, p.number);
    } else {
      cancelTimers(c, r, [p]);
      this.emitCame(c, s, r, p.number, deadlineExceeded, "the time limit of the step has passed");
    }
    this.proceed(c, s);
  }

  private cancel(c: Context, s: State): void {
    settled(s);
    if (s.run!.cancelled) return;
    const r = this.ready(c, s);
    if (!r) return;
    cancelTimers(c, r, r.cancellable);
    this.emit(c, s, r, "cancelled", "{}", 0);
    this.proceed(c, s);
  }

  // Starts the run as a child of another run.
  private startChild(c: Context, s: State): void {
    const [given, { token }] = member(frames.text(input.payload), "input");
    const from = c.source;
    if (from.kind !== "entity" || typeof token !== "string" || token === "") throw new Rejection(invalidPayload, "only a run can start a child");
    if (s.status !== "") throw new Rejection("already_started", "a run of this id exists");
    const { sends } = this.definition.options;
    if (sends && !sends.some((pattern) => pattern.endsWith("*") ? from.entityType.startsWith(pattern.slice(0, -1)) : pattern === from.entityType)) {
      throw new Rejection("parent_not_declared", `${this.name} declares sends without ${from.entityType}, the type of the parent, and so cannot report its end`);
    }
    this.begin(c, s, given, { type: from.entityType, id: from.entityID, token });
  }

  // Records the outcome of a child run.
  private childEnded(c: Context, s: State): void {
    if (!s.isOpen) return;
    const [result, end] = member(frames.text(input.payload), "result");
    const from = c.source;
    const r = this.ready(c, s);
    if (!r || from.kind !== "entity") return;
    const child = r.children.find((of) => end["token"] === childToken(r, of.step) && of.type === from.entityType && of.id === from.entityID);
    if (!child) return;
    const p = r.find(child.step);
    if (p) {
      const code = textOf(end["code"]);
      cancelTimers(c, r, [p]);
      this.forget(c, s, r, p, code);
      this.emitCame(c, s, r, p.number, code, textOf(end["message"]), result);
    } else {
      this.emitLeft(c, s, r, child.step);
    }
    this.proceed(c, s);
  }

  // Removes a child run that failed with deadline_exceeded from the open children.
  // The outcome of the step alone does not show that the child has ended, because
  // a step whose time limit passes has the same code and leaves its child open.
  private forget(c: Context, s: State, r: Run, step: Step, code: string): void {
    if (step.kind === "run" && code === deadlineExceeded) this.emitLeft(c, s, r, step.number);
  }

  // Ends the run, because it exceeds a limit of the node. This also works for runs
  // whose function cannot continue.
  private endedByNode(c: Context, s: State): void {
    if (!s.isOpen) return;
    let end: { code?: string; message?: string };
    try {
      end = endSchema.read(frames.json(input.payload) ?? {}, "");
    } catch (e) {
      if (isUnreadable(e)) return;
      throw e;
    }
    if (!end.code) throw new Rejection(invalidPayload, "the end of a run by the node needs a code"); // the run would be completed
    this.finish(c, s, s.run!, { result: "", code: end.code, message: end.message ?? "" });
  }

  // Ends or cancels a child run whose parent has ended.
  private parentEnded(c: Context, s: State): void {
    if (!s.isOpen) return;
    const [, end] = member(frames.text(input.payload), "");
    const from = c.source;
    const { type, id, token } = s.run!.parent;
    if (!token || token !== end["token"] || from.kind !== "entity" || type !== from.entityType || id !== from.entityID) return;
    if (end["close"] === "terminate") { // also if its function cannot continue
      this.finish(c, s, s.run!, { result: "", code: terminated, message: "the run's parent has ended" });
    } else {
      this.cancel(c, s);
    }
  }
}

interface Asked { step: number; kind: string; target?: string; name?: string; digest: string; close?: string }

// The first 4 KiB of a message.
function shortened(message: string): string {
  while (utf8Length(message) > 4 << 10) message = message.slice(0, Math.min(message.length - 1, 4 << 10));
  return message;
}

/**
 * Declares a workflow type: an async function that calls entities, sleeps and
 * waits for signals, for days if necessary, as if it were never interrupted. Each
 * entity of the type is one run. The function may use only its input, f, and
 * values of its own: no variables outside of it that change. It may await only
 * steps of f, and what is made of them. If it throws a Rejection, the run fails;
 * if it throws anything else, the run stays open until a module serves that can
 * continue it.
 *
 * A run has the commands "start" with the input, "signal" with {name, value},
 * "cancel" and "terminate", and the query "state", which all return its state.
 */
export function workflow<In = any, Out = unknown>(name: string, run: (f: Flow, input: In) => Promise<Out>, options?: WorkflowOptions): WorkflowType;
export function workflow<In, Out = unknown>(name: string, schema: Schema<In>, run: (f: Flow, input: In) => Promise<Out>, options?: WorkflowOptions): WorkflowType;
export function workflow(name: string, first: unknown, second?: unknown, third?: unknown): WorkflowType {
  return typeof first === "function"
    ? new WorkflowType(name, undefined, first as (f: Flow, input: any) => unknown, (second ?? {}) as WorkflowOptions)
    : new WorkflowType(name, first as Schema<any>, second as (f: Flow, input: any) => unknown, (third ?? {}) as WorkflowOptions);
}
