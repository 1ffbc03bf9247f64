// SDK for hostd entities written in AssemblyScript. An entity type is a class
// for its state, and functions that decide on commands, apply events to the
// state and answer queries. The README has an example.
//
// emit encodes the event, decodes it from the bytes that it wrote, and applies
// it to the state, so that a live entity and a replayed one take the same path.
// Event functions must depend only on the state and the event.
//
// Handlers are plain functions, because the language has no closures. A trap is
// a fault: nothing of the call is stored, and its reason is in the node's log.

import {
  Fields, Json, None, Table, Value, grow, lastFault, outAt, outLength, parse, putByte, putObject, putSchema, putString, putUTF8,
  readObject, setOutLength,
} from "./hostd-json";

export { Fields, Json, None, Table };

// Times are nanoseconds.
export const MILLISECOND: i64 = 1_000_000;
export const SECOND: i64 = 1000 * MILLISECOND;
export const MINUTE: i64 = 60 * SECOND;
export const HOUR: i64 = 60 * MINUTE;

// @ts-ignore: decorator
@external("hostd", "log")
declare function importLog(level: i32, line: usize, length: i32): void;

export enum Level { Debug, Info, Warn, Error }

/**
 * Writes a line to the node's log. The host keeps 32 lines of 1 KiB per call.
 */
export function log(level: Level, line: string): void {
  const bytes = String.UTF8.encode(line);
  importLog(level, changetype<usize>(bytes), bytes.byteLength);
}

/** Ends a call with a fault. */
export function hostdAbort(message: string | null, file: string | null, line: u32, column: u32): void {
  log(Level.Error, (message ? message : "abort") + " at " + (file ? file : "?") + ":" + line.toString() + ":" + column.toString());
  unreachable();
}

function must(holds: bool, message: string): void {
  if (holds) return;
  log(Level.Error, "hostd: " + message);
  unreachable();
}

// Frames

function open(kind: i32): i32 {
  putByte(kind);
  grow(4);
  return outLength();
}

function close(start: i32): void {
  store<u32>(outAt() + start - 4, outLength() - start);
}

function putName(text: string): void {
  const mark = outLength();
  grow(2);
  putUTF8(text);
  // A longer text is truncated; it still exceeds the limit of names, so the
  // host rejects the command.
  const length = min(outLength() - mark - 2, 0xffff);
  setOutLength(mark + 2 + length);
  store<u16>(outAt() + mark, <u16>length);
}

function putPayload(payload: Json | null): void {
  if (payload && !(payload instanceof None)) putObject(payload);
}

// The input of a call, which the host writes. A global keeps it alive.

let input = new StaticArray<u8>(4096);
let inputEnd: usize = 0;
let frameAt: usize = 0; // of the next frame
let kind: u8 = 0;
let bodyAt: usize = 0;
let bodyLength: i32 = 0;

function begin(length: i32): void {
  frameAt = changetype<usize>(input);
  inputEnd = frameAt + length;
  setOutLength(0);
}

/** Reads the next frame; false at the end. */
function next(): bool {
  if (frameAt >= inputEnd) return false;
  must(inputEnd - frameAt >= 5, "a frame is cut off");
  kind = load<u8>(frameAt);
  bodyLength = load<i32>(frameAt + 1);
  bodyAt = frameAt + 5;
  must(<u32>bodyLength <= <u32>(inputEnd - bodyAt), "a frame is cut off");
  frameAt = bodyAt + bodyLength;
  return true;
}

function body(): string {
  return String.UTF8.decodeUnsafe(bodyAt, bodyLength);
}

/** Takes a text that is preceded by its length off the body. */
function cut(): string {
  must(bodyLength >= 2, "a text is cut off");
  const length: i32 = load<u16>(bodyAt);
  must(length <= bodyLength - 2, "a text is cut off");
  const text = String.UTF8.decodeUnsafe(bodyAt + 2, length);
  bodyAt += 2 + length;
  bodyLength -= 2 + length;
  return text;
}

// The input of a call

export enum SourceKind { None, Client, Timer, Entity }

/** The identity of a caller. */
export class Principal {
  groups: string[] = [];

  /**
   * Kind is "token", "jwt", "certificate", or "anonymous" for a caller without
   * a credential. Name is unique within its kind.
   */
  constructor(public kind: string, public name: string) {}
}

/**
 * The interface of a query handler to the host. It is valid during the call.
 */
export class View {
  entityType: string = "";
  entityID: string = "";
  /** The number of the entity's last event before this call. */
  sequence: u64 = 0;
  /**
   * The time that the host set for this call, in nanoseconds since 1970 UTC.
   */
  now: i64 = 0;
  /**
   * The caller. It is null if the cluster does not authenticate callers, and
   * for commands that entities and timers send. A handler that authorizes by
   * owner should then reject.
   */
  principal: Principal | null = null;

  protected rejected: bool = false;
  private settings: string[] = []; // names, each followed by its value

  // Only set for commands.
  protected id: string = "";
  protected seed: u64 = 0;
  protected from: SourceKind = SourceKind.Client;
  protected fromType: string = "";
  protected fromID: string = "";
  protected dueAt: i64 = 0;

  /**
   * Rejects the command or query: the handler must return the result of reject.
   * Reject before emitting events, because the host has to reload an entity
   * whose state has changed already.
   */
  reject<R extends Json>(code: string, message: string): R | null {
    this.refuse(code, message);
    return null;
  }

  refuse(code: string, message: string): void {
    if (this.rejected) return;
    this.rejected = true;
    const start = open(3);
    putName(code);
    putUTF8(message);
    close(start);
  }

  isRejected(): bool {
    return this.rejected;
  }

  /**
   * The value that operators have set for the entity's type under a name; null
   * if it is not set. Event functions cannot read settings: put whatever an
   * event needs into the event.
   */
  setting(name: string): string | null {
    for (let i = 0; i < this.settings.length; i += 2) if (this.settings[i] == name) return this.settings[i + 1];
    return null;
  }

  /** Handles a frame of the input that describes the call. */
  takeFrame(): void {
    switch (kind) {
      case 3: this.sequence = load<u64>(bodyAt); break;
      case 18: this.id = body(); break;
      case 19: this.now = load<i64>(bodyAt); break;
      case 20: this.seed = load<u64>(bodyAt); break;
      case 21: {
        this.from = <SourceKind>load<u8>(bodyAt);
        if (this.from != SourceKind.Entity) break;
        bodyAt++;
        bodyLength--;
        this.fromType = cut();
        this.fromID = cut();
        break;
      }
      case 22: this.dueAt = load<i64>(bodyAt); break;
      case 23: {
        const name = cut(), p = new Principal(name, cut());
        while (bodyLength > 0) p.groups.push(cut());
        this.principal = p;
        break;
      }
      case 24: while (bodyLength > 0) this.settings.push(cut()); break;
    }
  }
}

/** What happens to ticks of a schedule that could not fire in time. */
export enum Missed { Once, All, Skip }

/**
 * The interface of a command handler to the host. It is valid during the call.
 */
export class Context<S extends Json> extends View {
  constructor(private entity: Entity<S>, private current: S) {
    super();
  }

  /** The state. Commands of a durable-state type change it in place. */
  get state(): S {
    return this.current;
  }

  /** The command's id, under which it takes effect only once. */
  get commandID(): string {
    return this.id;
  }

  get source(): SourceKind {
    return this.from;
  }

  /** The entity that sent this command, if source is Entity. */
  get sourceType(): string {
    return this.fromType;
  }

  get sourceID(): string {
    return this.fromID;
  }

  /** When the timer that sent this command was due; 0 for any other command. */
  get due(): i64 {
    return this.dueAt;
  }

  /**
   * The next number of the command's own random sequence: the same command on
   * the same state draws the same numbers. Not suitable for secrets.
   */
  random(): u64 {
    // splitmix64
    this.seed += 0x9e3779b97f4a7c15;
    let z = this.seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /** Appends an event and applies it to the state. */
  emit<E extends Json>(event: E): void {
    const declared = this.entity.eventOf(idof<E>());
    const start = open(1);
    putName(declared.stored);
    const payload = outLength();
    putObject(event);
    close(start);
    const value = parse(outAt() + payload, outLength() - payload);
    must(value != null && declared.apply(this.current, value), "the emitted event cannot be decoded: " + lastFault());
  }

  /** Adds a tag to the event that was emitted last. */
  tag(tag: string): void {
    const start = open(8);
    putUTF8(tag);
    close(start);
  }

  /** Sends a command to another entity, exactly once. */
  send(entityType: string, entityID: string, command: string, payload: Json | null): void {
    const start = open(4);
    putName(entityType);
    putName(entityID);
    putName(command);
    putPayload(payload);
    close(start);
  }

  /**
   * Like send, with the outcome sent back as a command of this entity: onReply
   * with the reply as its payload, or onReject with {"code":...,"message":...}.
   */
  sendWithAnswer(entityType: string, entityID: string, command: string, onReply: string, onReject: string, payload: Json | null): void {
    const start = open(11);
    putName(entityType);
    putName(entityID);
    putName(command);
    putName(onReply);
    putName(onReject);
    putPayload(payload);
    close(start);
  }

  /**
   * Makes the host send this entity a command at a time. It replaces a timer of
   * the same name. A timer that is due at i64.MAX_VALUE, on 2262-04-11, never
   * fires. If the time is before 1970, which can also result from an overflow,
   * the host rejects the command with `invalid_argument`.
   */
  setTimer(name: string, due: i64, command: string, payload: Json | null): void {
    const start = open(5);
    putName(name);
    store<i64>(grow(8), due);
    putName(command);
    putPayload(payload);
    close(start);
  }

  /** Removes a timer or a schedule, if there is one of that name. */
  cancelTimer(name: string): void {
    const start = open(6);
    putUTF8(name);
    close(start);
  }

  /**
   * Makes the host send this entity a command periodically. The expression is
   * "@every 90s", or five fields of the wall clock of a zone, where "" means
   * UTC. Each call restarts the period, so call it only once.
   */
  schedule(name: string, expression: string, zone: string, missed: Missed, command: string, payload: Json | null): void {
    const start = open(12);
    putName(name);
    putName(expression);
    putName(zone);
    putByte(missed);
    putName(command);
    putPayload(payload);
    close(start);
  }

  /** Asks the host to remove the entity from memory after this command. */
  passivate(): void {
    close(open(7));
  }

  /** Ends the entity's life after this command's events. */
  delete(): void {
    close(open(10));
  }
}

// Entity types

abstract class EventBase<S extends Json> {
  stored: string; // type of stored events, with the version

  constructor(public declared: string, public id: u32) {
    this.stored = declared;
  }

  abstract apply(state: S, payload: Value): bool;
  abstract sample(): Json;
}

class EventOf<S extends Json, E extends Json> extends EventBase<S> {
  constructor(declared: string, private evolve: (state: S, event: E) => void) {
    super(declared, idof<E>());
  }

  apply(state: S, payload: Value): bool {
    const event = instantiate<E>(), evolve = this.evolve;
    if (!readObject(payload, event)) return false;
    evolve(state, event);
    return true;
  }

  sample(): Json {
    return instantiate<E>();
  }
}

abstract class UpcastBase {
  stored: string;
  to: string = "";

  constructor(public declared: string, public version: i32, public takes: u32, public gives: u32) {
    this.stored = versioned(declared, version);
  }

  /** Writes the next version of an event; false if this one cannot be read. */
  abstract write(payload: Value): bool;

  up(payload: Value): Value | null {
    const mark = outLength();
    const value = this.write(payload) ? parse(outAt() + mark, outLength() - mark) : null;
    setOutLength(mark);
    return value;
  }

  abstract sample(): Json;
}

class UpcastOf<Old extends Json, New extends Json> extends UpcastBase {
  constructor(declared: string, version: i32, private make: (old: Old) => New) {
    super(declared, version, idof<Old>(), idof<New>());
  }

  write(payload: Value): bool {
    const old = instantiate<Old>(), make = this.make;
    if (!readObject(payload, old)) return false;
    putObject(make(old));
    return true;
  }

  sample(): Json {
    return instantiate<Old>();
  }
}

/** The type of the stored events of a version. */
function versioned(name: string, version: i32): string {
  return version == 1 ? name : name + ".v" + version.toString();
}

abstract class CommandBase<S extends Json> {
  internal: bool = false;
  rejections: string[] | null = null;

  constructor(public name: string) {}

  abstract run(c: Context<S>, payload: Value | null): void;
  abstract readsNone(): bool;
  abstract input(): Json;
  abstract output(): Json;
}

class CommandOf<S extends Json, C extends Json, R extends Json> extends CommandBase<S> {
  constructor(name: string, private handler: (c: Context<S>, cmd: C) => R | null) {
    super(name);
  }

  run(c: Context<S>, payload: Value | null): void {
    const cmd = instantiate<C>(), handler = this.handler;
    if (!readObject(payload, cmd)) {
      c.refuse("invalid_payload", lastFault());
      return;
    }
    putReply<R>(c, handler(c, cmd));
  }

  readsNone(): bool {
    return idof<C>() == idof<None>();
  }

  input(): Json {
    return instantiate<C>();
  }

  output(): Json {
    return instantiate<R>();
  }
}

abstract class QueryBase<S extends Json> {
  constructor(public name: string) {}

  abstract run(v: View, state: S, payload: Value | null): void;
  abstract readsNone(): bool;
  abstract input(): Json;
  abstract output(): Json;
}

class QueryOf<S extends Json, Q extends Json, R extends Json> extends QueryBase<S> {
  constructor(name: string, private handler: (v: View, state: S, query: Q) => R | null) {
    super(name);
  }

  run(v: View, state: S, payload: Value | null): void {
    const query = instantiate<Q>(), handler = this.handler;
    if (!readObject(payload, query)) {
      v.refuse("invalid_payload", lastFault());
      return;
    }
    putReply<R>(v, handler(v, state, query));
  }

  readsNone(): bool {
    return idof<Q>() == idof<None>();
  }

  input(): Json {
    return instantiate<Q>();
  }

  output(): Json {
    return instantiate<R>();
  }
}

function putReply<R extends Json>(v: View, reply: R | null): void {
  if (v.isRejected() || idof<R>() == idof<None>()) return;
  must(reply != null, "a handler has returned neither a reply nor a rejection");
  const start = open(2);
  putObject(reply!);
  close(start);
}

/** Reads the payload of a command or query; false if it was rejected. */
function given(v: View, at: usize, length: i32): bool {
  payload = null;
  if (length == 0) return true;
  payload = parse(at, length);
  if (payload) return true;
  v.refuse("invalid_payload", lastFault());
  return false;
}

let payload: Value | null = null;

/** An entity type without its type parameter. */
export abstract class Definition {
  constructor(public name: string) {}

  abstract link(): void;
  abstract describe(): void;
  abstract load(snapshot: usize, length: i32, version: u64): Json | null;
  abstract apply(state: Json, type: string, at: usize, length: i32): bool;
  abstract putUpcast(type: string, at: usize, length: i32): void;
  abstract handle(slot: Slot, length: i32): void;
  abstract answer(slot: Slot, length: i32): void;
}

/** An entity in this instance. */
export class Slot {
  constructor(public def: Definition, public id: string, public state: Json) {}
}

/** An entity type whose state is an S. Pass it to serve. */
export class Entity<S extends Json> extends Definition {
  private options: string = "";
  private isDurable: bool = false;
  private hasSchemas: bool = true;
  private events: EventBase<S>[] = [];
  private upcasts: UpcastBase[] = [];
  private migrations: UpcastBase[] = []; // of states
  private version: i32 = 0; // of the state
  private commands: CommandBase<S>[] = [];
  private queries: QueryBase<S>[] = [];

  constructor(name: string) {
    super(name);
  }

  /**
   * Makes the type a durable-state type: commands change the state in place,
   * and a rejected command leaves it unchanged. The host stores the state
   * instead of events.
   */
  durable(): Entity<S> {
    this.isDurable = true;
    return this;
  }

  /**
   * Additional members of the type in the manifest, as JSON without the braces.
   */
  manifest(members: string): Entity<S> {
    this.options += "," + members;
    return this;
  }

  /**
   * Sets the version of the form of the state: a module with the same version
   * may load existing snapshots after a compatibility check.
   */
  stateVersion(version: i32): Entity<S> {
    this.version = version;
    return this;
  }

  /** Omits the type's schemas from the manifest. */
  noSchemas(): Entity<S> {
    this.hasSchemas = false;
    return this;
  }

  /** Declares an event: its name, and how it changes the state. */
  event<E extends Json>(name: string, evolve: (state: S, event: E) => void): Entity<S> {
    must(!this.isDurable, this.name + ": a durable-state type has no events");
    for (let i = 0; i < this.events.length; i++) {
      const other = this.events[i];
      must(other.declared != name && other.id != idof<E>(), this.name + ": event " + name + " is declared twice");
    }
    this.events.push(new EventOf<S, E>(name, evolve));
    return this;
  }

  /**
   * Declares an earlier version of an event: version is its number, from 1 on,
   * and up converts it to the next version. The current version, which event
   * declares, is the one after the last upcast version. It is stored with the
   * version appended to its name, such as placed.v2; version 1 has the name
   * alone.
   */
  upcast<Old extends Json, New extends Json>(name: string, version: i32, up: (old: Old) => New): Entity<S> {
    must(version >= 1 && version <= 1000, this.name + ": event " + name + ": a version must be between 1 and 1000");
    this.upcasts.push(new UpcastOf<Old, New>(name, version, up));
    return this;
  }

  /**
   * Declares an earlier version of a durable-state type's state: version is its
   * number, from 1 on, and up converts it to the next version,
   * deterministically. The current version is the one after the last migrated
   * version. States that were stored before a version was declared have version
   * 1.
   *
   * The stored state is not changed until a command changes the entity's state;
   * until then it is migrated each time the entity is loaded.
   */
  migrateState<Old extends Json, New extends Json>(version: i32, up: (old: Old) => New): Entity<S> {
    must(this.isDurable, this.name + ": only a durable-state type has states to migrate");
    must(version >= 1 && version <= 1000, this.name + ": a version of a state must be between 1 and 1000");
    this.migrations.push(new UpcastOf<Old, New>("state", version, up));
    return this;
  }

  /**
   * Declares a command. The handler decides: it emits events and returns the
   * reply, or null if the reply is None.
   */
  command<C extends Json, R extends Json>(name: string, handler: (c: Context<S>, cmd: C) => R | null): Entity<S> {
    for (let i = 0; i < this.commands.length; i++) must(this.commands[i].name != name, this.name + ": command " + name + " is declared twice");
    this.commands.push(new CommandOf<S, C, R>(name, handler));
    return this;
  }

  /** Declares a command that only entities and timers may send. */
  internal<C extends Json, R extends Json>(name: string, handler: (c: Context<S>, cmd: C) => R | null): Entity<S> {
    this.command<C, R>(name, handler);
    this.commands[this.commands.length - 1].internal = true;
    return this;
  }

  /**
   * Lists the codes with which the handler of a command, which must be declared
   * already, rejects it, so that generated clients have them as a type. The
   * host does not enforce the list.
   */
  rejects(command: string, codes: string[]): Entity<S> {
    let found = false;
    for (let i = 0; i < this.commands.length; i++) {
      if (this.commands[i].name != command) continue;
      this.commands[i].rejections = codes;
      found = true;
    }
    must(found, this.name + ": no command " + command + " is declared");
    return this;
  }

  /** Declares a query. */
  query<Q extends Json, R extends Json>(name: string, handler: (v: View, state: S, query: Q) => R | null): Entity<S> {
    for (let i = 0; i < this.queries.length; i++) must(this.queries[i].name != name, this.name + ": query " + name + " is declared twice");
    this.queries.push(new QueryOf<S, Q, R>(name, handler));
    return this;
  }

  eventOf(id: u32): EventBase<S> {
    for (let i = 0; i < this.events.length; i++) if (this.events[i].id == id) return this.events[i];
    must(false, this.name + ": the emitted value is not an event of this type");
    return this.events[0];
  }

  link(): void {
    for (let i = 0; i < this.upcasts.length; i++) {
      const u = this.upcasts[i], what = this.name + ": event " + u.declared + " of version " + u.version.toString();
      let last = u.version, takes: u32 = 0;
      for (let k = 0; k < this.upcasts.length; k++) {
        const other = this.upcasts[k];
        if (other.declared != u.declared) continue;
        must(k == i || other.version != u.version, what + " is upcast twice");
        last = max(last, other.version);
        if (other.version == u.version + 1) takes = other.takes;
      }
      u.to = versioned(u.declared, last + 1);
      if (u.version == last) {
        for (let k = 0; k < this.events.length; k++) {
          if (this.events[k].declared != u.declared) continue;
          takes = this.events[k].id;
          this.events[k].stored = u.to;
        }
      }
      must(takes == u.gives, what + " must be upcast to the type of the next version");
    }
    this.linkStates();
  }

  /**
   * Sorts the migrations of states, and derives the current version from them.
   */
  private linkStates(): void {
    const count = this.migrations.length;
    if (count == 0) return;
    this.migrations.sort((a, b) => a.version - b.version);
    for (let i = 0; i < count; i++) {
      const m = this.migrations[i], what = this.name + ": state of version " + m.version.toString();
      const follows = i + 1 == count || this.migrations[i + 1].version == m.version + 1;
      const takes = i + 1 == count ? idof<S>() : this.migrations[i + 1].takes;
      must(follows && takes == m.gives, what + " must be migrated to the type of the next version");
    }
    const today = this.migrations[count - 1].version + 1;
    must(this.version == 0 || this.version == today, this.name + ": the state has version " + today.toString() + ", but stateVersion is different");
    this.version = today;
  }

  private schema(name: string, value: Json, given: bool, closed: bool): void {
    if (!this.hasSchemas || value instanceof None) return;
    putUTF8(',"' + name + '":');
    putSchema(value, given, closed);
  }

  describe(): void {
    putUTF8('{"name":');
    putString(this.name);
    putUTF8(',"kind":"' + (this.isDurable ? "durable-state" : "event-sourced") + '","encoding":"json","commands":[');
    for (let i = 0; i < this.commands.length; i++) {
      const c = this.commands[i];
      putUTF8(i > 0 ? ',{"name":' : '{"name":');
      putString(c.name);
      if (c.internal) putUTF8(',"internal":true');
      const codes = c.rejections;
      if (codes) {
        putUTF8(',"rejections":[');
        for (let k = 0; k < codes.length; k++) {
          if (k > 0) putByte(0x2c);
          putString(codes[k]);
        }
        putByte(0x5d);
      }
      // The sender of an internal command is another module, which may be
      // newer.
      this.schema("schema", c.input(), true, !c.internal);
      this.schema("reply", c.output(), false, false);
      putByte(0x7d);
    }
    putUTF8('],"queries":[');
    for (let i = 0; i < this.queries.length; i++) {
      const q = this.queries[i];
      putUTF8(i > 0 ? ',{"name":' : '{"name":');
      putString(q.name);
      this.schema("schema", q.input(), true, true);
      this.schema("reply", q.output(), false, false);
      putByte(0x7d);
    }
    putUTF8('],"events":[');
    for (let i = 0; i < this.events.length; i++) {
      putUTF8(i > 0 ? ',{"type":' : '{"type":');
      putString(this.events[i].stored);
      this.schema("schema", this.events[i].sample(), false, false);
      putByte(0x7d);
    }
    for (let i = 0; i < this.upcasts.length; i++) {
      putUTF8(',{"type":');
      putString(this.upcasts[i].stored);
      putUTF8(',"upcastTo":');
      putString(this.upcasts[i].to);
      this.schema("schema", this.upcasts[i].sample(), false, false);
      putByte(0x7d);
    }
    putByte(0x5d);
    this.schema("state", instantiate<S>(), false, false);
    if (this.version > 0) putUTF8(',"stateVersion":' + this.version.toString());
    for (let i = 0; i < this.migrations.length; i++) {
      putUTF8((i > 0 ? ',{"version":' : ',"readsStates":[{"version":') + this.migrations[i].version.toString());
      this.schema("schema", this.migrations[i].sample(), false, false);
      putUTF8(i + 1 < this.migrations.length ? "}" : "}]");
    }
    putUTF8(this.options);
    putByte(0x7d);
  }

  load(snapshot: usize, length: i32, version: u64): Json | null {
    const state = instantiate<S>();
    if (snapshot == 0) return state;
    let value = parse(snapshot, length);
    if (version != 0 && version != <u64>this.version) {
      let read = false;
      for (let i = 0; value && i < this.migrations.length; i++) {
        const m = this.migrations[i];
        read = read || <u64>m.version == version;
        if (read) value = m.up(value);
      }
      if (!read) return null;
    }
    return value && readObject(value, state) ? state : null;
  }

  apply(state: Json, type: string, at: usize, length: i32): bool {
    let value = length > 0 ? parse(at, length) : new Value(), stored = type;
    while (value) {
      for (let i = 0; i < this.events.length; i++) {
        if (this.events[i].stored == stored) return this.events[i].apply(changetype<S>(state), value);
      }
      let up: UpcastBase | null = null;
      for (let i = 0; i < this.upcasts.length; i++) if (this.upcasts[i].stored == stored) up = this.upcasts[i];
      if (!up) {
        log(Level.Error, "hostd: event type " + stored + " is not declared");
        return false;
      }
      value = up.up(value);
      stored = versioned(up.declared, up.version + 1);
    }
    return false;
  }

  /**
   * Writes an event in its current form, as readers get it. Events in the
   * current form, and undeclared ones, are written unchanged.
   */
  putUpcast(type: string, at: usize, length: i32): void {
    const older = this.isDurable ? this.migrations : this.upcasts;
    let stored = type, value: Value | null = null, last: UpcastBase | null = null;
    for (;;) {
      let up: UpcastBase | null = null;
      for (let i = 0; i < older.length; i++) if (older[i].stored == stored) up = older[i];
      if (!up) break;
      value = !last ? (length > 0 ? parse(at, length) : new Value()) : value ? last.up(value) : null;
      must(value != null, this.name + ": event " + stored + " cannot be upcast: " + lastFault());
      last = up;
      stored = versioned(up.declared, up.version + 1);
    }
    const start = open(1);
    putName(stored);
    if (last) must(last.write(value!), this.name + ": event " + stored + " cannot be upcast: " + lastFault());
    else memory.copy(grow(length), at, length);
    close(start);
  }

  handle(slot: Slot, length: i32): void {
    const state = changetype<S>(slot.state), c = new Context<S>(this, state);
    let before: StaticArray<u8> | null = null;
    if (this.isDurable) {
      putObject(state);
      const copy = new StaticArray<u8>(outLength());
      memory.copy(changetype<usize>(copy), outAt(), outLength());
      before = copy;
      setOutLength(0);
    }
    request(c, slot);
    let found: CommandBase<S> | null = null;
    for (let i = 0; i < this.commands.length; i++) if (this.commands[i].name == name) found = this.commands[i];
    if (!found) c.refuse("unknown_name", "no such command");
    else if (given(c, payloadAt, found.readsNone() ? 0 : payloadLength)) found.run(c, payload);
    if (!before) return;
    if (c.isRejected()) {
      const again = this.load(changetype<usize>(before), before.length, 0);
      must(again != null, "the state cannot be read back");
      slot.state = again!;
      return;
    }
    const mark = outLength(), start = open(9);
    putObject(state);
    close(start);
    const same = outLength() - start == before.length && memory.compare(outAt() + start, changetype<usize>(before), before.length) == 0;
    if (same) setOutLength(mark);
  }

  answer(slot: Slot, length: i32): void {
    const v = new View();
    request(v, slot);
    let found: QueryBase<S> | null = null;
    for (let i = 0; i < this.queries.length; i++) if (this.queries[i].name == name) found = this.queries[i];
    if (!found) v.refuse("unknown_name", "no such query");
    else if (given(v, payloadAt, found.readsNone() ? 0 : payloadLength)) found.run(v, changetype<S>(slot.state), payload);
  }
}

// Results of the last call of request.
let name: string = "";
let payloadAt: usize = 0;
let payloadLength: i32 = 0;

/** Reads the frames of a command or query. */
function request(v: View, slot: Slot): void {
  v.entityType = slot.def.name;
  v.entityID = slot.id;
  name = "";
  payloadAt = 0;
  payloadLength = 0;
  while (next()) {
    if (kind == 16) {
      name = body();
    } else if (kind == 17) {
      payloadAt = bodyAt;
      payloadLength = bodyLength;
    } else {
      v.takeFrame();
    }
  }
}

// The module

let moduleName: string = "";
let moduleVersion: string = "";
const types: Definition[] = [];
const slots: (Slot | null)[] = [];

/**
 * Makes entity types the module's. Call it once, at the top level of a file.
 */
export function serve(name: string, version: string, entities: Definition[]): void {
  must(!types.length && entities.length > 0, "serve is called once, with entity types");
  moduleName = name;
  moduleVersion = version;
  for (let i = 0; i < entities.length; i++) {
    entities[i].link();
    types.push(entities[i]);
  }
}

export function span(): u64 {
  const length = outLength();
  return length ? (<u64>outAt() << 32) | (<u64>(<u32>length)) : 0;
}

export function describeModule(): u64 {
  setOutLength(0);
  must(types.length > 0, "the module never called serve");
  putUTF8('{"abi":1,"name":');
  putString(moduleName);
  putUTF8(',"version":');
  putString(moduleVersion);
  putUTF8(',"entityTypes":[');
  for (let i = 0; i < types.length; i++) {
    if (i > 0) putByte(0x2c);
    types[i].describe();
  }
  putUTF8("]}");
  return span();
}

const MAX_INPUT: u32 = 4 << 20;

export function buffer(size: u32): usize {
  if (size > MAX_INPUT) return 0;
  if (<i32>size > input.length) input = new StaticArray<u8>(size);
  return changetype<usize>(input);
}

// Limits handles, so that a wrong one does not exhaust memory.
const MAX_ENTITIES: u64 = 1 << 20;

function slotOf(entity: u64): Slot {
  const slot = entity < <u64>slots.length ? slots[<i32>entity] : null;
  must(slot != null, "no entity has this handle");
  return slot!;
}

export function loadEntity(type: i32, entity: u64, length: i32): i32 {
  begin(length);
  let id = "", snapshot: usize = 0, snapshotLength = 0, version: u64 = 0;
  while (next()) {
    if (kind == 1) id = body();
    if (kind == 2) {
      snapshot = bodyAt;
      snapshotLength = bodyLength;
    }
    if (kind == 4) version = load<u64>(bodyAt);
  }
  if (entity >= MAX_ENTITIES) return 2;
  const state = types[type].load(snapshot, snapshotLength, version);
  if (!state) return 1;
  while (<u64>slots.length <= entity) slots.push(null);
  slots[<i32>entity] = new Slot(types[type], id, state);
  return 0;
}

export function applyEvents(entity: u64, length: i32): i32 {
  const slot = slotOf(entity);
  begin(length);
  while (next()) {
    if (kind != 32) continue;
    bodyAt += 16; // its number and its time
    bodyLength -= 16;
    const type = cut();
    if (!slot.def.apply(slot.state, type, bodyAt, bodyLength)) {
      log(Level.Error, "hostd: event " + type + " cannot be applied: " + lastFault());
      return 1;
    }
  }
  return 0;
}

export function upcastEvents(type: i32, length: i32): u64 {
  begin(length);
  while (next()) {
    if (kind != 32) continue;
    bodyAt += 16; // its number and its time
    bodyLength -= 16;
    const name = cut();
    types[type].putUpcast(name, bodyAt, bodyLength);
  }
  return span();
}

export function handleCommand(entity: u64, length: i32): u64 {
  begin(length);
  const slot = slotOf(entity);
  slot.def.handle(slot, length);
  return span();
}

export function answerQuery(entity: u64, length: i32): u64 {
  begin(length);
  const slot = slotOf(entity);
  slot.def.answer(slot, length);
  return span();
}

export function snapshotOf(entity: u64): u64 {
  setOutLength(0);
  putObject(slotOf(entity).state);
  return span();
}

export function dropEntity(entity: u64): void {
  if (entity < <u64>slots.length) slots[<i32>entity] = null;
}
