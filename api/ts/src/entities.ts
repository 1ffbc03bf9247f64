import { Rejected, Transport, base64, bytes, newCommandId, type CallOptions, type Options } from "./core.js";

/** What an entity type has. */
export interface EntityType {
  commands: Record<string, { payload: unknown; reply: unknown; rejections: string }>;
  queries: Record<string, { payload: unknown; reply: unknown }>;
  event: { type: string; data: unknown };
  state: unknown;
}

/** The names of commands or queries. */
type Names<T> = Extract<keyof T, string>;

/** A command of a type, by its name. */
export type CommandOf<T extends EntityType> = { [N in Names<T["commands"]>]: { name: N; payload: T["commands"][N]["payload"] } }[Names<T["commands"]>];

/** A query of a type, by its name. */
export type QueryOf<T extends EntityType> = { [N in Names<T["queries"]>]: { name: N; payload: T["queries"][N]["payload"] } }[Names<T["queries"]>];

/** An event of an entity's history. */
export interface Event<Type extends string = string, Data = unknown> {
  type: Type;
  /** The type that the event is stored with, if it was upcast to another. */
  storedType?: string;
  data: Data;
  entityId: string;
  sequence: number;
  commandId: string;
  /** When the command ran, as RFC 3339 has it. */
  recordedAt: string;
  tags: string[];
  moduleDigest: string;
  /** Who made the command, where that is kept. */
  principal?: { kind: string; name: string; groups?: string[] };
  /** Where to go on behind the event. */
  cursor: string;
}

/** A command's outcome. The command is durable. */
export interface Reply<R> {
  value: R;
  commandId: string;
  /** Of the entity after the command. */
  sequence: number;
  eventCount: number;
  /** The reply is the stored one of an earlier command with this id. */
  duplicate: boolean;
  nodeId: string;
}

/** What a query found, or a state. */
export interface Answer<R> {
  value: R;
  sequence: number;
}

export interface SendOptions extends CallOptions {
  /** Names the command: sent again it has no second effect. Made up when it is not given. */
  commandId?: string;
  /** When the command was first sent under its id, with no outcome known: as Date.now() has it. */
  firstTried?: number;
  /** The sequence that the entity must be at. */
  expectedSequence?: number;
}

export interface QueryOptions extends CallOptions {
  /** Answers from memory, without asking whether it is the latest. */
  stale?: boolean;
}

export interface Subscription {
  /** Only events with it. */
  tag?: string;
  /** That of the last event that is done with; the beginning without it. */
  cursor?: string;
  /** Only events of these shards; all without it. */
  shards?: number[];
  /** Ends at the newest event when it is false. */
  follow?: boolean;
  /** Begins at the newest event where the cursor has no position: for those who follow. */
  fromNewest?: boolean;
  /** Goes on past events that were cut, as the type retains no more. */
  skipCut?: boolean;
  /** Has events of older forms in today's, as the module that serves the type upcasts them. */
  upcast?: boolean;
  /** Called with how many events were cut and skipped, before the event that follows them. */
  skipped?: (events: number) => void;
  signal?: AbortSignal;
}

/** A payload may be left out where it may be null. */
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
   * Runs one command. It tries again, with the same id, while no node can say
   * what became of it. It throws Rejected, SequenceMismatch or HostdError.
   */
  async send<N extends Names<T["commands"]>>(name: N, ...[payload, o = {}]: Payload<T["commands"][N]["payload"], SendOptions>): Promise<Reply<T["commands"][N]["reply"]>> {
    const commandId = o.commandId || newCommandId();
    const m = await this.#transport.unary(service + "Send", {
      entityType: this.type, entityId: this.id, command: name, commandId, ...given(payload),
      ...(o.expectedSequence === undefined ? {} : { expectedSequence: o.expectedSequence }),
    }, { firstTried: o.firstTried }, o);
    return { value: got(m), commandId, sequence: Number(m.sequence ?? 0), eventCount: m.eventCount ?? 0, duplicate: m.duplicate ?? false, nodeId: m.nodeId ?? "" };
  }

  /** Asks one query. */
  async query<N extends Names<T["queries"]>>(name: N, ...[payload, o = {}]: Payload<T["queries"][N]["payload"], QueryOptions>): Promise<Answer<T["queries"][N]["reply"]>> {
    return answer(await this.#transport.unary(service + "Query", {
      entityType: this.type, entityId: this.id, query: name, ...given(payload), ...(o.stale ? { consistency: "STALE" } : {}),
    }, true, o));
  }

  /** The state, after all events or those up to a sequence. */
  async state(atSequence?: number, o: CallOptions = {}): Promise<Answer<T["state"]>> {
    return answer(await this.#transport.unary(service + "GetState", {
      entityType: this.type, entityId: this.id, ...(atSequence === undefined ? {} : { atSequence }),
    }, true, o));
  }
}

function answer(m: any): Answer<any> {
  return { value: got(m), sequence: Number(m.sequence ?? 0) };
}

/** Reaches the entities of a cluster. */
export class Client<T extends { [K in keyof T]: EntityType }> {
  readonly transport: Transport;

  /** It does not connect: calls do. Several addresses are nodes of one cluster. */
  constructor(addresses: string | string[], options?: Options) {
    this.transport = new Transport(addresses, options);
  }

  entity<K extends Extract<keyof T, string>>(type: K, id: string): Entity<T[K]> {
    return new Entity(this.transport, type, id);
  }

  /**
   * The events of a type: in order for each entity, each once, over the loss of
   * nodes. It follows until its signal, or the loop that reads it, ends.
   */
  async *subscribe<K extends Extract<keyof T, string>>(type: K, s: Subscription = {}): AsyncGenerator<T[K]["event"] & Event, void, undefined> {
    for await (const m of this.transport.resumed(service + "Subscribe", {
      entityType: type, tag: s.tag ?? "", cursor: s.cursor ?? "", shards: s.shards ?? [], follow: s.follow ?? true,
      fromNewest: s.fromNewest ?? false, skipCut: s.skipCut ?? false, upcast: s.upcast ?? false,
    }, s.signal)) {
      if (m.skipped) s.skipped?.(Number(m.skipped));
      if (!m.sequence) continue; // it says where the stream begins
      const e: Event = {
        type: m.eventType, ...(m.storedType ? { storedType: m.storedType } : {}), data: got(m), entityId: m.entityId, sequence: Number(m.sequence), commandId: m.commandId ?? "", recordedAt: m.recordedAt ?? "",
        tags: m.tags ?? [], moduleDigest: m.moduleDigest ?? "", cursor: m.cursor, ...(m.principal ? { principal: m.principal } : {}),
      };
      yield e as T[K]["event"] & Event;
    }
  }

  /** A projection of the events of a type: its run() hands them over in batches. */
  projection<K extends Extract<keyof T, string>>(type: K, options: ProjectionOptions<T[K]["event"] & Event>): Projection<T[K]["event"] & Event> {
    return new Projection((s) => this.subscribe(type, s), options);
  }
}

/** Some events in order, and where to continue after the last of them. */
export interface Batch<E extends Event = Event> {
  events: E[];
  cursor: string;
  /** How long ago the last event was recorded, by the cluster's clock against the one here. */
  lagMs: number;
}

export interface ProjectionOptions<E extends Event = Event> {
  /** Its signal ends the projection. */
  subscription?: Subscription;
  /** Of a batch; 256. As many wait beside it. */
  maxEvents?: number;
  /** Works on a batch. Its failure ends the projection. */
  apply(batch: Batch<E>): void | Promise<void>;
}

/**
 * Hands the events of a subscription to a function in batches: whatever has come
 * while it worked on the previous one. Storing a batch's cursor together with what
 * was made of its events, in one transaction, and starting with the cursor stored
 * last takes every event into account once.
 */
export class Projection<E extends Event = Event> {
  readonly #events: (s: Subscription) => AsyncIterable<E>;
  readonly #options: ProjectionOptions<E>;

  /** Client.projection makes one of the events of a type. */
  constructor(events: (s: Subscription) => AsyncIterable<E>, options: ProjectionOptions<E>) {
    this.#events = events;
    this.#options = options;
  }

  /**
   * Applies batches until the subscription's signal ends it, apply or the
   * subscription fails, or, without follow, all is applied.
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

/** Whether a failure is the rejection of a command of a type, by a code that the type lists. */
export function isRejected<T extends EntityType, N extends Names<T["commands"]>>(
  e: unknown, ..._of: [entity?: Entity<T>, name?: N]
): e is Rejected<T["commands"][N]["rejections"]> {
  return e instanceof Rejected;
}
