import * as clock from "./clock.js";
import type { Context, View } from "./context.js";
import * as json from "./json.js";
import type { JsonSchema, Schema } from "./schema.js";

/** A value that is read but not changed. */
export type Immutable<T> =
  T extends (...args: never[]) => unknown ? T :
  T extends readonly (infer E)[] ? readonly Immutable<E>[] :
  T extends object ? { readonly [K in keyof T]: Immutable<T[K]> } :
  T;

/** The events of a type: their payloads by name. */
export type EventMap = { [name: string]: unknown };

/** How the host treats the entities of a type. Every option may be omitted. */
export interface TypeOptions<S> {
  /** Returns the state of a new entity, an equal one each time; default {}. */
  initial?: () => S;
  /** The schema of the state. */
  state?: Schema<S>;
  /** Version of the form of the state: increment it when snapshots change. */
  stateVersion?: number;
  /** Number of events between two snapshots. */
  snapshotEvery?: number;
  /** How long an entity must be idle before it leaves memory, such as "2m". */
  passivateAfter?: string;
  /** Always-on: the host starts entities again after a restart or fail-over. */
  alwaysOn?: boolean;
  /** Exactly one entity, with the id "singleton", that is always in memory. */
  singleton?: boolean;
  /** Number of snapshots that are kept per entity, 1 to 4. */
  retainSnapshots?: number;
  /** Which events are kept although no retained snapshot needs them. */
  retainEvents?: "all" | "snapshots" | number;
  /** Stores the caller of each client command with its record. */
  recordPrincipal?: boolean;
  /** Places related entities in one shard. It can never change. */
  shardKey?: { group?: string; until?: string };
  /** The types that entities may send to: names, or prefixes followed by *. */
  sends?: readonly string[];
  /** The types whose messages entities accept, in the form of sends. */
  acceptsFrom?: readonly string[];
  /** false: nodes do not check payloads against the schemas. */
  validate?: boolean;
}

/** How the host treats a command, and the schema of its reply. */
export interface CommandOptions<R> {
  /** Hides the command from clients: only entities and timers may send it. */
  internal?: boolean;
  /** The schema of the reply. */
  reply?: Schema<R>;
  /**
   * The codes with which the handler rejects the command, so that generated
   * clients have them as a type. The host does not enforce the list.
   */
  rejects?: readonly string[];
}

/** The reply of a query. */
export interface QueryOptions<R> {
  reply?: Schema<R>;
}

interface EventOf {
  name: string;
  stored: string; // with its version
  schema?: Schema<unknown>;
  evolve: (state: any, event: any) => void;
}

interface Handler {
  schema?: Schema<unknown>;
  reply?: Schema<unknown>;
  internal: boolean;
  rejections?: readonly string[];
  encoded?: boolean; // the handler reads the payload itself
  run: (context: any, state: any, payload: any) => unknown;
}

interface Upcast {
  version: number;
  up: (old: any) => unknown;
  schema?: Schema<unknown>; // of the payload
}

/** An entity in this instance. */
export interface Entity {
  definition: Definition;
  id: string;
  state: unknown;
}

type Kind = "event-sourced" | "durable-state" | "transient" | "workflow";

/** Runs of a workflow type, whose states are more than what JSON has. */
export interface Runs {
  /** The state of a run that continues from a checkpoint; undefined if it is not readable. */
  load(id: string, checkpoint: string | undefined): unknown;
  apply(state: any, type: string, payload: string, at: bigint): void;
  /** The JSON text of a state. */
  text(state: any): string;
  /** Writes what a run waits for. */
  progress(state: any): void;
  release(state: any): void;
}

/** The declarations of a type, without its TypeScript type parameters. */
export class Definition {
  readonly events = new Map<string, EventOf>(); // by name
  readonly commands = new Map<string, Handler>();
  readonly queries = new Map<string, Handler>();
  private readonly upcasts = new Map<string, Upcast[]>(); // by the event's name
  private readonly migrations: Upcast[] = []; // of states, by version
  private readonly stored = new Map<string, EventOf>();
  /** Only of a workflow type. */
  runs?: Runs;
  private readonly older = new Map<string, { next: string; upcast: Upcast }>(); // events and states

  constructor(readonly name: string, readonly kind: Kind, readonly options: TypeOptions<any>) {
    if (!/^[a-z0-9-]{1,64}$/.test(name)) throw new TypeError(`"${name}" is not a valid type name: use 1 to 64 characters of a-z, 0-9 and -`);
  }

  /** The state of a new entity. */
  initial(): unknown { return this.options.initial ? this.options.initial() : {}; }

  addEvent(name: string, event: Omit<EventOf, "name" | "stored">): void {
    if (this.kind !== "event-sourced" && this.kind !== "workflow") throw new TypeError(`${this.name}: a ${this.kind} type has no events`);
    this.events.set(this.free(this.events, "event", name), { name, stored: name, ...event });
  }

  addUpcast(name: string, version: number, upcast: Omit<Upcast, "version">): void {
    if (!Number.isInteger(version) || version < 1 || version > 1000) throw new TypeError(`${this.name}: event ${name}: a version must be between 1 and 1000`);
    const list = this.upcasts.get(name) ?? [];
    if (list.some((u) => u.version === version)) throw new TypeError(`${this.name}: event ${name} of version ${version} is upcast twice`);
    list.push({ version, ...upcast });
    this.upcasts.set(name, list.sort((a, b) => a.version - b.version));
  }

  addMigration(version: number, migration: Omit<Upcast, "version">): void {
    if (this.kind === "transient") throw new TypeError(`${this.name}: a transient type stores no states to migrate`);
    if (!Number.isInteger(version) || version < 1 || version > 1000) throw new TypeError(`${this.name}: a version of a state must be between 1 and 1000`);
    if (this.migrations.some((m) => m.version === version)) throw new TypeError(`${this.name}: the state of version ${version} is migrated twice`);
    this.migrations.push({ version, ...migration });
    this.migrations.sort((a, b) => a.version - b.version);
  }

  addHandler(noun: "command" | "query", name: string, handler: Handler): void {
    const all = noun === "command" ? this.commands : this.queries;
    all.set(this.free(all, noun, name), handler);
  }

  private free(taken: Map<string, unknown>, noun: string, name: string): string {
    if (name === "") throw new TypeError(`${this.name}: a ${noun} without a name`);
    if (taken.has(name)) throw new TypeError(`${this.name}: ${noun} ${name} is declared twice`);
    return name;
  }

  /**
   * Assigns versions to the events that have upcasts. It may be called again.
   */
  link(): void {
    this.stored.clear();
    this.older.clear();
    for (const [name, list] of this.upcasts) {
      const event = this.events.get(name);
      if (!event) throw new TypeError(`${this.name}: event ${name} has an upcaster but is not declared`);
      list.forEach((u, i) => {
        if (i > 0 && u.version !== list[i - 1]!.version + 1) throw new TypeError(`${this.name}: event ${name} of version ${u.version - 1} is not upcast`);
        this.older.set(versioned(name, u.version), { next: versioned(name, u.version + 1), upcast: u });
      });
      event.stored = versioned(name, list[list.length - 1]!.version + 1);
    }
    for (const event of this.events.values()) {
      if (this.stored.has(event.stored) || this.older.has(event.stored)) throw new TypeError(`${this.name}: event type ${event.stored} is declared twice`);
      this.stored.set(event.stored, event);
    }
    this.migrations.forEach((m, i) => {
      if (i > 0 && m.version !== this.migrations[i - 1]!.version + 1) throw new TypeError(`${this.name}: the state of version ${m.version - 1} is not migrated`);
      if (this.kind === "durable-state") this.older.set(versioned(stateName, m.version), { next: versioned(stateName, m.version + 1), upcast: m });
    });
    const said = this.options.stateVersion;
    if (said !== undefined && this.migrations.length > 0 && said !== this.stateVersion) {
      throw new TypeError(`${this.name}: the state has version ${this.stateVersion}, but stateVersion is ${said}`);
    }
  }

  /** The version of the state; undefined if it is not declared. */
  private get stateVersion(): number | undefined {
    const last = this.migrations[this.migrations.length - 1];
    return last ? last.version + 1 : this.options.stateVersion;
  }

  /** Applies a stored event to an entity. */
  apply(entity: Entity, stored: string, payload: unknown): void {
    const [type, value] = this.newest(stored, payload);
    const event = this.stored.get(type);
    if (!event) throw new Error(`${this.name}: event type ${stored} is not declared`);
    this.evolve(entity, event, value);
  }

  /**
   * The type and payload of an event, or of a stored state, in their current
   * form. Without an upcast they are returned unchanged.
   */
  newest(type: string, payload: unknown): [type: string, payload: unknown] {
    for (let older = this.older.get(type); older; older = this.older.get(type)) {
      payload = upcasted(older.upcast, payload, `${this.name}: ${type}`);
      type = older.next;
    }
    return [type, payload];
  }

  /** Applies an event in its newest form to an entity. */
  evolve(entity: Entity, event: EventOf, payload: unknown): void {
    if (event.schema?.revives) payload = event.schema.read(payload, `event ${event.name}`);
    const before = clock.enter("evolve");
    try {
      synchronous(event.evolve(entity.state, payload), "event", event.name);
    } finally {
      clock.enter(before);
    }
  }

  /**
   * Decodes a stored state of a version, where 0 is the type's own; undefined
   * if the type does not read that version.
   */
  read(stored: unknown, version: number): { state: unknown } | undefined {
    if (version !== 0 && version !== this.stateVersion) {
      const first = this.migrations.findIndex((m) => m.version === version);
      if (first < 0) return undefined;
      for (const m of this.migrations.slice(first)) stored = upcasted(m, stored, `${this.name}: ${versioned(stateName, m.version)}`);
    }
    return { state: this.revive(stored) };
  }

  /** Restores the values of a decoded state that JSON cannot represent. */
  revive(state: unknown): unknown {
    const schema = this.options.state;
    return schema?.revives ? schema.read(state, "") : state;
  }

  /** The type in the form of the manifest. */
  describe(): JsonSchema {
    const { initial: _, state, stateVersion: __, ...options } = this.options;
    const version = this.stateVersion;
    const handlers = (all: Map<string, Handler>): JsonSchema[] => [...all].map(([name, h]) => ({
      name,
      ...(h.internal ? { internal: true } : {}),
      ...(h.rejections ? { rejections: h.rejections } : {}),
      ...rendered("schema", h.schema, true),
      ...rendered("reply", h.reply, false),
    }));
    return {
      name: this.name,
      kind: this.kind,
      encoding: "json",
      commands: handlers(this.commands),
      queries: handlers(this.queries),
      events: [
        ...[...this.events.values()].map((e) => ({ type: e.stored, ...rendered("schema", e.schema, false) })),
        ...this.kind !== "event-sourced" ? [] : [...this.older].map(([type, { upcast }]) => (
          { type, upcastTo: this.newestType(type), ...rendered("schema", upcast.schema, false) }
        )),
      ],
      ...options,
      ...rendered("state", state, false),
      ...(version === undefined ? {} : { stateVersion: version }),
      ...(this.migrations.length === 0 ? {} : {
        readsStates: this.migrations.map((m) => ({ version: m.version, ...rendered("schema", m.schema, false) })),
      }),
    };
  }

  private newestType(type: string): string {
    for (let older = this.older.get(type); older; older = this.older.get(type)) type = older.next;
    return type;
  }
}

function rendered(member: string, schema: Schema<unknown> | undefined, given: boolean): JsonSchema {
  const json = schema?.render(given);
  return json ? { [member]: json } : {};
}

// The name of durable states among events.
const stateName = "state";

// Upcasts an older form to the next one, and returns it as it is after
// decoding.
function upcasted({ schema, up }: Upcast, older: unknown, what: string): unknown {
  const made = synchronous(up(schema?.revives ? schema.read(older, "") : older), "the upcaster of", what);
  const text = json.write(made);
  if (text === undefined) throw new TypeError(`${what} is upcast to a value that JSON cannot express`);
  return json.read(text, json.isExact());
}

// The type of the stored events of a version.
function versioned(name: string, version: number): string {
  return version === 1 ? name : `${name}.v${version}`;
}

/**
 * Rejects the result of an async function, whose remaining part would never
 * run.
 */
export function synchronous<T>(value: T, noun: string, name: string): T {
  if (typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function") {
    throw new TypeError(`${noun} ${name} returned a promise: handlers are synchronous`);
  }
  return value;
}

/**
 * An entity type whose state is an S, whose events are E and whose commands see
 * the state as a V. Each method adds to the type and returns it.
 */
export class EntityType<S, E, V> {
  /** For use by the SDK only. */
  readonly definition: Definition;

  constructor(name: string, kind: Kind, options: TypeOptions<S>) {
    this.definition = new Definition(name, kind, options);
  }

  /**
   * Declares an event: its name in the journal and how it changes the state.
   * evolve must be deterministic and must not fail, because the event has
   * already happened.
   */
  event<N extends string, P = any>(name: N, evolve: (state: S, event: P) => void): EntityType<S, E & Record<N, P>, V>;
  event<N extends string, P>(name: N, schema: Schema<P>, evolve: (state: S, event: P) => void): EntityType<S, E & Record<N, P>, V>;
  event(name: string, first: unknown, second?: unknown): any {
    const [schema, evolve] = split(first, second);
    this.definition.addEvent(name, { ...(schema ? { schema } : {}), evolve: evolve as EventOf["evolve"] });
    return this;
  }

  /**
   * Declares an earlier version of an event: version is its number, from 1 on,
   * and up converts it to the next version. The current version, which event
   * declares, is the one after the last upcast version. up must be
   * deterministic and must not fail, like the function of event.
   */
  upcast(name: keyof E & string, version: number, up: (old: any) => unknown): this;
  upcast<O>(name: keyof E & string, version: number, schema: Schema<O>, up: (old: O) => unknown): this;
  upcast(name: string, version: number, first: unknown, second?: unknown): this {
    const [schema, up] = split(first, second);
    this.definition.addUpcast(name, version, { ...(schema ? { schema } : {}), up: up as Upcast["up"] });
    return this;
  }

  /**
   * Declares an earlier version of the type's state: version is its number,
   * from 1 on, and up converts it to the next version. The current version is
   * the one after the last migrated version, and stateVersion may be omitted.
   * States that were stored before a version was declared have version 1. up
   * must be deterministic and must not fail.
   *
   * The stored state is not changed until a command changes the entity's state;
   * until then it is migrated each time the entity is loaded. The states of an
   * event-sourced type are stored in its snapshots, and are migrated only if
   * the entity's first events were deleted.
   */
  migrateState(version: number, up: (old: any) => unknown): this;
  migrateState<O>(version: number, schema: Schema<O>, up: (old: O) => unknown): this;
  migrateState(version: number, first: unknown, second?: unknown): this {
    const [schema, up] = split(first, second);
    this.definition.addMigration(version, { ...(schema ? { schema } : {}), up: up as Upcast["up"] });
    return this;
  }

  /**
   * Declares a command. The handler decides: it emits events, each of which is
   * applied to the state immediately, and returns the reply. To reject the
   * command it throws the result of reject; any other exception is a fault.
   */
  command<P = any, R = unknown>(name: string, handler: (c: Context<E>, state: V, command: P) => R, options?: CommandOptions<R>): this;
  command<P, R = unknown>(name: string, schema: Schema<P>, handler: (c: Context<E>, state: V, command: P) => R, options?: CommandOptions<R>): this;
  command(name: string, first: unknown, second?: unknown, third?: unknown): this {
    const [schema, run, options] = split(first, second, third);
    this.add("command", name, schema, run, options as CommandOptions<unknown>);
    return this;
  }

  /** Declares a query. The handler reads the state and must not change it. */
  query<P = any, R = unknown>(name: string, handler: (v: View, state: Immutable<S>, query: P) => R, options?: QueryOptions<R>): this;
  query<P, R = unknown>(name: string, schema: Schema<P>, handler: (v: View, state: Immutable<S>, query: P) => R, options?: QueryOptions<R>): this;
  query(name: string, first: unknown, second?: unknown, third?: unknown): this {
    const [schema, run, options] = split(first, second, third);
    this.add("query", name, schema, run, options as CommandOptions<unknown>);
    return this;
  }

  private add(noun: "command" | "query", name: string, schema: Schema<unknown> | undefined, run: unknown, options: CommandOptions<unknown> = {}): void {
    this.definition.addHandler(noun, name, {
      ...(schema ? { schema } : {}),
      ...(options.reply ? { reply: options.reply } : {}),
      internal: options.internal ?? false,
      ...(options.rejects ? { rejections: options.rejects } : {}),
      run: run as Handler["run"],
    });
  }
}

function split(...given: unknown[]): [Schema<unknown> | undefined, unknown, unknown] {
  return typeof given[0] === "function" ? [undefined, given[0], given[1]] : [given[0] as Schema<unknown>, given[1], given[2]];
}

/**
 * Declares an event-sourced type: its state is derived from events. The name
 * has 1 to 64 characters of a-z, 0-9 and -.
 */
export function entity<S>(name: string, options: TypeOptions<S> = {}): EntityType<S, {}, Immutable<S>> {
  return new EntityType(name, "event-sourced", options);
}

/**
 * Declares a durable-state type: its commands change the state in place, and
 * the host stores the state after each command that changed it. A rejected
 * command leaves the state unchanged.
 */
export function durable<S>(name: string, options: TypeOptions<S> = {}): EntityType<S, {}, S> {
  return new EntityType(name, "durable-state", options);
}

/**
 * Declares a type whose entities store nothing: their state is in memory, their
 * commands change it in place, and it is lost when they leave memory. They send
 * nothing and set no timers.
 */
export function transient<S>(name: string, options: TypeOptions<S> = {}): EntityType<S, {}, S> {
  return new EntityType(name, "transient", options);
}
