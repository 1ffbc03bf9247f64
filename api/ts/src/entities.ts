import { Rejected, Transport, base64, bytes, newCommandId, type CallOptions, type Options } from "./core.js";

/** The commands, queries, events and state of an entity type. */
export interface EntityType {
  commands: Record<string, { payload: unknown; reply: unknown; rejections: string }>;
  queries: Record<string, { payload: unknown; reply: unknown }>;
  event: { type: string; data: unknown };
  state: unknown;
}

/** The names of commands or queries. */
type Names<T> = Extract<keyof T, string>;

/** A command of a type, with its name. */
export type CommandOf<T extends EntityType> = { [N in Names<T["commands"]>]: { name: N; payload: T["commands"][N]["payload"] } }[Names<T["commands"]>];

/** A query of a type, with its name. */
export type QueryOf<T extends EntityType> = { [N in Names<T["queries"]>]: { name: N; payload: T["queries"][N]["payload"] } }[Names<T["queries"]>];

/** An event of an entity's history. */
export interface Event<Type extends string = string, Data = unknown> {
  type: Type;
  /** The type of the stored event, if it was upcast to another type. */
  storedType?: string;
  data: Data;
  entityId: string;
  sequence: number;
  commandId: string;
  /** When the command ran, in the format of RFC 3339. */
  recordedAt: string;
  tags: string[];
  moduleDigest: string;
  /** The caller of the command, if it is stored. */
  principal?: { kind: string; name: string; groups?: string[] };
  /** Continues a subscription after the event. */
  cursor: string;
}

/** A command's outcome. The command is durable. */
export interface Reply<R> {
  value: R;
  commandId: string;
  /** The entity's sequence after the command. */
  sequence: number;
  eventCount: number;
  /** The command with this id had been carried out before, and this is its stored reply. */
  duplicate: boolean;
  nodeId: string;
}

/** The answer to a query, or a state. */
export interface Answer<R> {
  value: R;
  sequence: number;
}

export interface SendOptions extends CallOptions {
  /** A command with the same id takes effect once. The default is a new id. */
  commandId?: string;
  /** The Date.now() of the first attempt with this id, if its outcome is unknown. */
  firstTried?: number;
  /** The command fails unless the entity is at this sequence. */
  expectedSequence?: number;
}

export interface QueryOptions extends CallOptions {
  /** Answers from memory, without checking that the state is the latest. */
  stale?: boolean;
}

export interface Subscription {
  /** Only events with this tag. */
  tag?: string;
  /** The cursor of the last event that was handled; empty for the beginning. */
  cursor?: string;
  /** Only events of these shards; the default is all. */
  shards?: number[];
  /** If false, the subscription ends at the newest event. */
  follow?: boolean;
  /** In shards for which the cursor has no position, begins at the newest event. Needs follow. */
  fromNewest?: boolean;
  /** Skips events that were truncated by the type's retention. */
  skipTruncated?: boolean;
  /** Upcasts events of older versions to the current one with the active module. */
  upcast?: boolean;
  /** Called with the number of truncated events that were skipped, before the next event. */
  skipped?: (events: number) => void;
  signal?: AbortSignal;
}

/** A payload may be omitted if its type allows null. */
type Payload<P, O> = null extends P ? [payload?: P, options?: O] : [payload: P, options?: O];

const service = "hostd.entity.v1.EntityService/";

function given(payload: unknown): any {
  return payload instanceof Uint8Array ? { data: base64(payload) } : payload === undefined ? {} : { json: payload };
}

function got(m: any): any {
  return m.data !== undefined ? bytes(m.data) : m.json ?? null;
}

/** One entity. */
export class Entity<T extends EntityType> {
  readonly type: string;
  readonly id: string;
  readonly #transport: Transport;

  constructor(transport: Transport, type: string, id: string) {
    this.#transport = transport;
    this.type = type;
    this.id = id;
  }

  /**
   * Sends one command. It retries with the same id until the outcome is known or the
   * time is up. It throws Rejected, SequenceMismatch or HostdError.
   */
  async send<N extends Names<T["commands"]>>(name: N, ...[payload, o = {}]: Payload<T["commands"][N]["payload"], SendOptions>): Promise<Reply<T["commands"][N]["reply"]>> {
    const commandId = o.commandId || newCommandId();
    const m = await this.#transport.unary(service + "SendCommand", {
      entityType: this.type, entityId: this.id, command: name, commandId, ...given(payload),
      ...(o.expectedSequence === undefined ? {} : { expectedSequence: o.expectedSequence }),
    }, { firstTried: o.firstTried }, o);
    return { value: got(m), commandId, sequence: Number(m.sequence ?? 0), eventCount: m.eventCount ?? 0, duplicate: m.duplicate ?? false, nodeId: m.nodeId ?? "" };
  }

  /** Sends one query. */
  async query<N extends Names<T["queries"]>>(name: N, ...[payload, o = {}]: Payload<T["queries"][N]["payload"], QueryOptions>): Promise<Answer<T["queries"][N]["reply"]>> {
    return answer(await this.#transport.unary(service + "QueryEntity", {
      entityType: this.type, entityId: this.id, query: name, ...given(payload), ...(o.stale ? { consistency: "STALE" } : {}),
    }, true, o));
  }

  /** Returns the current state, or the state at a sequence. */
  async state(atSequence?: number, o: CallOptions = {}): Promise<Answer<T["state"]>> {
    return answer(await this.#transport.unary(service + "GetState", {
      entityType: this.type, entityId: this.id, ...(atSequence === undefined ? {} : { atSequence }),
    }, true, o));
  }
}

function answer(m: any): Answer<any> {
  return { value: got(m), sequence: Number(m.sequence ?? 0) };
}

/** A client of a cluster's entities. */
export class Client<T extends { [K in keyof T]: EntityType }> {
  readonly transport: Transport;

  /** It does not connect; calls do. Multiple addresses must be nodes of one cluster. */
  constructor(addresses: string | string[], options?: Options) {
    this.transport = new Transport(addresses, options);
  }

  entity<K extends Extract<keyof T, string>>(type: K, id: string): Entity<T[K]> {
    return new Entity(this.transport, type, id);
  }

  /**
   * Delivers the events of a type: each event once, in order for each entity, even if
   * nodes fail. It follows until its signal aborts it or the loop that reads it ends.
   */
  async *subscribe<K extends Extract<keyof T, string>>(type: K, s: Subscription = {}): AsyncGenerator<T[K]["event"] & Event, void, undefined> {
    for await (const m of this.transport.resumed(service + "SubscribeEvents", {
      entityType: type, tag: s.tag ?? "", cursor: s.cursor ?? "", shards: s.shards ?? [], follow: s.follow ?? true,
      fromNewest: s.fromNewest ?? false, skipTruncated: s.skipTruncated ?? false, upcast: s.upcast ?? false,
    }, s.signal)) {
      if (m.skipped) s.skipped?.(Number(m.skipped));
      if (!m.sequence) continue; // the message only has the cursor of the beginning
      const e: Event = {
        type: m.eventType, ...(m.storedType ? { storedType: m.storedType } : {}), data: got(m), entityId: m.entityId, sequence: Number(m.sequence), commandId: m.commandId ?? "", recordedAt: m.recordedAt ?? "",
        tags: m.tags ?? [], moduleDigest: m.moduleDigest ?? "", cursor: m.cursor, ...(m.principal ? { principal: m.principal } : {}),
      };
      yield e as T[K]["event"] & Event;
    }
  }

  /** Returns a projection of the events of a type. Its run() passes them to apply in batches. */
  projection<K extends Extract<keyof T, string>>(type: K, options: ProjectionOptions<T[K]["event"] & Event>): Projection<T[K]["event"] & Event> {
    return new Projection((s) => this.subscribe(type, s), options);
  }
}

/** Consecutive events, and the cursor after the last of them. */
export interface Batch<E extends Event = Event> {
  events: E[];
  cursor: string;
  /** Date.now() minus the time at which the cluster recorded the last event. */
  lagMs: number;
}

export interface ProjectionOptions<E extends Event = Event> {
  /** Which events to apply. Its signal ends the projection. */
  subscription?: Subscription;
  /** The maximum size of a batch; 256. While apply runs, as many more events are read. */
  maxEvents?: number;
  /** Applies a batch. If it fails, the projection ends. */
  apply(batch: Batch<E>): void | Promise<void>;
}

/**
 * Passes the events of a subscription to a function in batches. A batch has the
 * events that arrived while the function applied the previous batch. To apply every
 * event once, store the batch's cursor in the same transaction as the results, and
 * start with the last stored cursor.
 */
export class Projection<E extends Event = Event> {
  readonly #events: (s: Subscription) => AsyncIterable<E>;
  readonly #options: ProjectionOptions<E>;

  /** Client.projection returns a projection of the events of a type. */
  constructor(events: (s: Subscription) => AsyncIterable<E>, options: ProjectionOptions<E>) {
    this.#events = events;
    this.#options = options;
  }

  /**
   * Applies batches until the subscription's signal aborts it, or apply or the
   * subscription fails. Without follow it ends when all events are applied.
   */
  async run(): Promise<void> {
    const { subscription = {} } = this.#options;
    const most = this.#options.maxEvents || 256;
    const caller = subscription.signal;
    const ended = new AbortController();
    let held: E[] = [];
    let done = false;
    let failed: { why: unknown } | undefined;
    let wakeReader = () => {};
    let wake = () => {};
    const stop = () => {
      ended.abort();
      wakeReader();
      wake();
    };
    const read = async () => {
      try {
        for await (const e of this.#events({ ...subscription, signal: ended.signal })) {
          while (held.length >= most && !ended.signal.aborted) await new Promise<void>((go) => (wakeReader = go));
          held.push(e);
          wake();
        }
      } catch (why) {
        failed = { why };
      }
      done = true;
      wake();
    };
    caller?.addEventListener("abort", stop);
    if (caller?.aborted) stop();
    const reading = read();
    try {
      while (!ended.signal.aborted && (held.length > 0 || !done)) {
        const events = held;
        const last = events.at(-1);
        if (!last) {
          await new Promise<void>((go) => (wake = go));
          continue;
        }
        held = [];
        wakeReader();
        await this.#options.apply({ events, cursor: last.cursor, lagMs: Date.now() - Date.parse(last.recordedAt) });
      }
    } finally {
      caller?.removeEventListener("abort", stop);
      stop();
      await reading;
    }
    if (failed) throw failed.why;
  }
}

/** Reports whether e is the rejection of a command, with a code that the type lists. */
export function isRejected<T extends EntityType, N extends Names<T["commands"]>>(
  e: unknown, ..._of: [entity?: Entity<T>, name?: N]
): e is Rejected<T["commands"][N]["rejections"]> {
  return e instanceof Rejected;
}
