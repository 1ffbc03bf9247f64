import * as clock from "./clock.js";
import type { Context, View } from "./context.js";
import * as json from "./json.js";
import type { JsonSchema, Schema } from "./schema.js";

/** A value that is looked at and not changed. */
export type Immutable<T> =
  T extends (...args: never[]) => unknown ? T :
  T extends readonly (infer E)[] ? readonly Immutable<E>[] :
  T extends object ? { readonly [K in keyof T]: Immutable<T[K]> } :
  T;

/** The events of a type: their payloads by their names. */
export type EventMap = { [name: string]: unknown };

/** How the host treats the entities of a type. All of it may be left out. */
export interface TypeOptions<S> {
  /** Makes the state of a new entity: an equal one each time. {} without it. */
  initial?: () => S;
  /** What the state looks like. */
  state?: Schema<S>;
  /** Numbers the form of the state: raise it when snapshots change. */
  stateVersion?: number;
  /** The events between two snapshots. */
  snapshotEvery?: number;
  /** How long an entity is idle before it leaves memory, such as "2m". */
  passivateAfter?: string;
  /** Starts entities again by itself after a restart or a fail-over. */
  rememberEntities?: boolean;
  /** One entity, with the id "singleton", that is in memory at all times. */
  singleton?: boolean;
  /** How many snapshots of an entity are kept, 1 to 4. */
  retainSnapshots?: number;
  /** Which events stay that no kept snapshot needs. */
  retainEvents?: "all" | "snapshots" | number;
  /** Keeps who called with each command of a client. */
  recordPrincipal?: boolean;
  /** Puts entities that belong together into one shard. It never changes. */
  shardKey?: { group?: string; until?: string };
  /** The types that entities may send to: names, or their beginnings with *. */
  sends?: readonly string[];
  /** The types that entities take messages from, likewise. */
  acceptsFrom?: readonly string[];
  /** false: nodes do not hold payloads to the schemas. */
  validate?: boolean;
}

/** How the host treats a command, and what it answers. */
export interface CommandOptions<R> {
  /** Keeps the command from clients: entities and timers send it. */
  internal?: boolean;
  /** What the reply looks like. */
  reply?: Schema<R>;
  /**
   * The codes by which the handler rejects the command, so that clients have them
   * as a type. The host does not hold the handler to them.
   */
  rejects?: readonly string[];
}

/** What a query answers. */
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
  run: (context: any, state: any, payload: any) => unknown;
}

interface Upcast {
  version: number;
  up: (old: any) => unknown;
  schema?: Schema<unknown>; // of what is given
}

/** An entity of an instance. */
export interface Entity {
  definition: Definition;
  id: string;
  state: unknown;
}

type Kind = "event-sourced" | "durable-state" | "transient";

/** What is declared of a type, with its TypeScript types out of sight. */
export class Definition {
  readonly events = new Map<string, EventOf>(); // by name
  readonly commands = new Map<string, Handler>();
  readonly queries = new Map<string, Handler>();
  private readonly upcasts = new Map<string, Upcast[]>(); // by the event's name
  private readonly migrations: Upcast[] = []; // of states, by version
  private readonly stored = new Map<string, EventOf>();
  private readonly older = new Map<string, { next: string; upcast: Upcast }>(); // events and states

  constructor(readonly name: string, readonly kind: Kind, readonly options: TypeOptions<any>) {
    if (!/^[a-z0-9-]{1,64}$/.test(name)) throw new TypeError(`"${name}" is no name of a type: it has 1 to 64 of a-z, 0-9 and -`);
  }

  /** The state of a new entity. */
  initial(): unknown { return this.options.initial ? this.options.initial() : {}; }

  addEvent(name: string, event: Omit<EventOf, "name" | "stored">): void {
    if (this.kind !== "event-sourced") throw new TypeError(`${this.name}: a ${this.kind} type has no events`);
    this.events.set(this.free(this.events, "event", name), { name, stored: name, ...event });
  }

  addUpcast(name: string, version: number, upcast: Omit<Upcast, "version">): void {
    if (!Number.isInteger(version) || version < 1 || version > 1000) throw new TypeError(`${this.name}: event ${name}: a version is 1 to 1000`);
    const list = this.upcasts.get(name) ?? [];
    if (list.some((u) => u.version === version)) throw new TypeError(`${this.name}: event ${name} of version ${version} is upcast twice`);
    list.push({ version, ...upcast });
    this.upcasts.set(name, list.sort((a, b) => a.version - b.version));
  }

  addMigration(version: number, migration: Omit<Upcast, "version">): void {
    if (this.kind === "transient") throw new TypeError(`${this.name}: a transient type stores no states to migrate`);
    if (!Number.isInteger(version) || version < 1 || version > 1000) throw new TypeError(`${this.name}: a version of a state is 1 to 1000`);
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

  /** Gives events that are upcast to their versions. It may be called again. */
  link(): void {
    this.stored.clear();
    this.older.clear();
    for (const [name, list] of this.upcasts) {
      const event = this.events.get(name);
      if (!event) throw new TypeError(`${this.name}: event ${name} is upcast and not declared`);
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
      throw new TypeError(`${this.name}: the state is of version ${this.stateVersion}, and stateVersion is ${said}`);
    }
  }

  /** The number of the state's form; undefined where nobody says. */
  private get stateVersion(): number | undefined {
    const last = this.migrations[this.migrations.length - 1];
    return last ? last.version + 1 : this.options.stateVersion;
  }

  /** Evolves an entity by an event of its history. */
  apply(entity: Entity, stored: string, payload: unknown): void {
    const [type, value] = this.newest(stored, payload);
    const event = this.stored.get(type);
    if (!event) throw new Error(`${this.name}: event type ${stored} is not declared`);
    this.evolve(entity, event, value);
  }

  /**
   * An event, or a stored state, as it is today: its type and its payload. What is
   * not upcast stays as it is.
   */
  newest(type: string, payload: unknown): [type: string, payload: unknown] {
    for (let older = this.older.get(type); older; older = this.older.get(type)) {
      payload = upcasted(older.upcast, payload, `${this.name}: ${type}`);
      type = older.next;
    }
    return [type, payload];
  }

  /** Evolves an entity by an event of the newest form. */
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
   * The state of a stored one, of a version that is 0 where it is the type's own;
   * undefined for a version that is not read.
   */
  read(stored: unknown, version: number): { state: unknown } | undefined {
    if (version !== 0 && version !== this.stateVersion) {
      const first = this.migrations.findIndex((m) => m.version === version);
      if (first < 0) return undefined;
      for (const m of this.migrations.slice(first)) stored = upcasted(m, stored, `${this.name}: ${versioned(stateName, m.version)}`);
    }
    return { state: this.revive(stored) };
  }

  /** A state as it was before it was written. */
  revive(state: unknown): unknown {
    const schema = this.options.state;
    return schema?.revives ? schema.read(state, "") : state;
  }

  /** The type as the manifest has it. */
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

// What durable states are called among events.
const stateName = "state";

// The form after it of an older one, as it is when it is read back.
function upcasted({ schema, up }: Upcast, older: unknown, what: string): unknown {
  const made = synchronous(up(schema?.revives ? schema.read(older, "") : older), "the upcaster of", what);
  const text = json.write(made);
  if (text === undefined) throw new TypeError(`${what} is upcast to nothing that JSON has`);
  return json.read(text, json.isExact());
}

// The type of the stored events of a version.
function versioned(name: string, version: number): string {
  return version === 1 ? name : `${name}.v${version}`;
}

/** Refuses what an async function answers: nothing would ever run its rest. */
export function synchronous<T>(value: T, noun: string, name: string): T {
  if (typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function") {
    throw new TypeError(`${noun} ${name} answered a promise: handlers are synchronous`);
  }
  return value;
}

/**
 * An entity type whose state is an S, whose events are E and whose commands see
 * the state as a V. Each method adds to the type and answers it.
 */
export class EntityType<S, E, V> {
  /** Of the SDK. */
  readonly definition: Definition;

  constructor(name: string, kind: Kind, options: TypeOptions<S>) {
    this.definition = new Definition(name, kind, options);
  }

  /**
   * Declares an event: its name in the journal and how it changes the state,
   * which it is given. evolve must be deterministic and must not fail: the event
   * has happened.
   */
  event<N extends string, P = any>(name: N, evolve: (state: S, event: P) => void): EntityType<S, E & Record<N, P>, V>;
  event<N extends string, P>(name: N, schema: Schema<P>, evolve: (state: S, event: P) => void): EntityType<S, E & Record<N, P>, V>;
  event(name: string, first: unknown, second?: unknown): any {
    const [schema, evolve] = split(first, second);
    this.definition.addEvent(name, { ...(schema ? { schema } : {}), evolve: evolve as EventOf["evolve"] });
    return this;
  }

  /**
   * Declares that the event of a name has had another form before: version is its
   * number, from 1 on, and up makes the form of the version after it. What event
   * declares is the version after the last that is upcast. up must be
   * deterministic and must not fail, as evolving.
   */
  upcast(name: keyof E & string, version: number, up: (old: any) => unknown): this;
  upcast<O>(name: keyof E & string, version: number, schema: Schema<O>, up: (old: O) => unknown): this;
  upcast(name: string, version: number, first: unknown, second?: unknown): this {
    const [schema, up] = split(first, second);
    this.definition.addUpcast(name, version, { ...(schema ? { schema } : {}), up: up as Upcast["up"] });
    return this;
  }

  /**
   * Declares that the states of a type have had another form before:
   * version is its number, from 1 on, and up makes the form of the version after
   * it. The state is the version after the last that is migrated; stateVersion
   * may be left out. States that were stored before a version was declared are
   * of version 1. up must be deterministic and must not fail.
   *
   * What is stored stays as it is until a command changes the entity's state:
   * until then it is migrated each time that the entity is loaded. The states of
   * an event-sourced type are stored in its snapshots, and are migrated if the
   * first events of an entity are gone.
   */
  migrateState(version: number, up: (old: any) => unknown): this;
  migrateState<O>(version: number, schema: Schema<O>, up: (old: O) => unknown): this;
  migrateState(version: number, first: unknown, second?: unknown): this {
    const [schema, up] = split(first, second);
    this.definition.addMigration(version, { ...(schema ? { schema } : {}), up: up as Upcast["up"] });
    return this;
  }

  /**
   * Declares a command. The handler decides: it emits events, which evolve the
   * state at once, and returns the reply. What it throws with reject refuses the
   * command; anything else is a fault.
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
 * Declares an event-sourced type: the truth is the events. The name has 1 to 64
 * of a-z, 0-9 and -.
 */
export function entity<S>(name: string, options: TypeOptions<S> = {}): EntityType<S, {}, Immutable<S>> {
  return new EntityType(name, "event-sourced", options);
}

/**
 * Declares a durable-state type: its commands change the state in place, and
 * what is stored is the state after each command that changed it. A command that
 * is rejected leaves it as it was.
 */
export function durable<S>(name: string, options: TypeOptions<S> = {}): EntityType<S, {}, S> {
  return new EntityType(name, "durable-state", options);
}

/**
 * Declares a type whose entities keep nothing: their state is in memory, their
 * commands change it in place, and it is lost when they leave memory. They send
 * nothing and set no timers.
 */
export function transient<S>(name: string, options: TypeOptions<S> = {}): EntityType<S, {}, S> {
  return new EntityType(name, "transient", options);
}
