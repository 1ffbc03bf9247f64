import * as clock from "./clock.js";
import type { Definition, Entity } from "./entity.js";
import * as frames from "./frames.js";
import * as json from "./json.js";
import { natives } from "./natives.js";

const { input, output } = frames;

/** The identity of a caller: see View.principal. */
export interface Principal {
  /** The kind of credential; "anonymous" without one. */
  kind: "token" | "jwt" | "certificate" | "anonymous";
  /** Unique within its kind; empty for anonymous callers. */
  name: string;
  groups: string[];
}

/** The sender of a command. */
export type Source =
  | { kind: "client" }
  | { kind: "timer" }
  | { kind: "entity"; entityType: string; entityID: string };

/** A time: a Date, milliseconds since 1970, or nanoseconds as a bigint. */
export type Instant = Date | number | bigint;

/** The commands of this entity that receive the outcome of a send. */
export interface Answer {
  /** Its payload is the reply. */
  onReply: string;
  /** Its payload is {"code":...,"message":...}. */
  onReject: string;
}

/** A command that the host sends to an entity periodically. */
export interface Schedule {
  /**
   * Either "@every" and a duration, such as "@every 90s", or five fields of the
   * wall clock: minute, hour, day of the month, month, day of the week, such as
   * "0 3 * * mon-fri"; or @hourly, @daily, @weekly, @monthly, @yearly.
   */
  cron: string;
  /** The IANA time zone of the wall clock; default UTC. */
  zone?: string;
  /**
   * What happens to ticks that could not fire; "once" fires one, late, for all.
   */
  missed?: "once" | "all" | "skip";
  command: string;
  payload?: unknown;
}

const missedNumbers = { once: 0, all: 1, skip: 2 };

// The latest time of the host, on 2262-04-11: it means never.
export const never = 2n ** 63n - 1n;

// A time before 1970, or an invalid one, is passed to the host as -1, for which
// it rejects the command. An uncaught exception instead would be a fault of the
// module, although the time may come from a caller.
export function nanosecondsOf(at: Instant): bigint {
  if (typeof at !== "bigint") {
    const milliseconds = at instanceof Date ? at.getTime() : at;
    if (typeof milliseconds !== "number" || Number.isNaN(milliseconds) || milliseconds < 0) return -1n;
    at = milliseconds * 1e6 >= 2 ** 63 ? never : BigInt(Math.trunc(milliseconds)) * 1_000_000n;
  }
  return at < 0n ? -1n : at < never ? at : never;
}

/**
 * The interface of a query handler to the host. It is valid during the call.
 */
export class View {
  /** For use by the SDK only. */
  protected entity!: Entity;
  protected definition!: Definition;

  /** For use by the SDK only: sets the view up for a call. */
  open(entity: Entity): void {
    this.entity = entity;
    this.definition = entity.definition;
  }

  get entityType(): string { return this.definition.name; }

  get entityID(): string { return this.entity.id; }

  /** The number of the entity's last event before this call. */
  get sequence(): number { return frames.uint64(input.sequence); }

  /** The time that the host set for this call; Date.now() returns the same. */
  get now(): Date { return new Date(); }

  /** The time of this call, in nanoseconds since 1970. */
  get nanoseconds(): bigint { return frames.nanoseconds(input.now); }

  /**
   * The caller; undefined if the cluster does not authenticate callers, and for
   * commands that entities and timers send. A handler that authorizes by owner
   * should then reject.
   */
  get principal(): Principal | undefined {
    if (!frames.has(input.principal)) return undefined;
    const [kind, name, ...groups] = frames.fields(input.principal, 0);
    return { kind: kind as Principal["kind"], name: name!, groups };
  }

  /**
   * The value that operators have set for the entity's type under a name;
   * undefined if it is not set. Event functions cannot read settings: put
   * whatever an event needs into the event.
   */
  setting(name: string): string | undefined {
    const all = frames.fields(input.settings, 0);
    for (let i = 0; i < all.length; i += 2) if (all[i] === name) return all[i + 1];
    return undefined;
  }

  /** Writes a line to the node's log, like console.log. */
  log(level: "debug" | "info" | "warn" | "error", line: string): void {
    natives.log(levels.indexOf(level), line);
  }
}

const levels = ["debug", "info", "warn", "error"];

/**
 * The interface of a command handler to the host. It is valid during the call.
 */
export class Context<E = any> extends View {
  /** The command's id, under which it takes effect only once. */
  get commandID(): string { return frames.text(input.commandID); }

  /** The sender of this command. */
  get source(): Source {
    switch (frames.byte(input.source)) {
      case 2: return { kind: "timer" };
      case 3: {
        const [entityType, entityID] = frames.fields(input.source, 1);
        return { kind: "entity", entityType: entityType!, entityID: entityID! };
      }
    }
    return { kind: "client" };
  }

  /**
   * When the timer or schedule that sent this command was due; undefined for
   * any other command.
   */
  get due(): Date | undefined {
    return frames.has(input.due) ? new Date(Number(frames.nanoseconds(input.due) / 1_000_000n)) : undefined;
  }

  /**
   * The next number of the command's own random sequence, in [0, 1), like
   * Math.random: the same command on the same state draws the same numbers. Not
   * suitable for secrets.
   */
  random(): number { return clock.random(); }

  /**
   * Appends an event, and applies it to the state before it returns. Events
   * with a tag can be read across entities.
   */
  emit<N extends keyof E & string>(name: N, payload: E[N], ...tags: string[]): void {
    const event = this.definition.events.get(name);
    if (!event) throw new TypeError(`${this.definition.name} has no event ${name}`);
    const written = this.text(payload ?? {}, "event", name);
    const exact = json.isExact();
    const frame = frames.start(output.event);
    frames.field(event.stored);
    frames.put(written);
    frames.end(frame);
    for (const tag of tags) this.named(output.tag, tag);
    this.definition.evolve(this.entity, event, json.read(written, exact));
  }

  /**
   * Sends a command to another entity, exactly once, after this one is stored.
   */
  send(entityType: string, entityID: string, command: string, payload?: unknown): void {
    this.sent(output.send, entityType, entityID, command);
    this.ended(payload, command);
  }

  /** Is send, with the outcome sent back as a command. */
  sendWithAnswer(entityType: string, entityID: string, command: string, payload: unknown, answer: Answer): void {
    this.sent(output.sendWithAnswer, entityType, entityID, command);
    frames.field(answer.onReply);
    frames.field(answer.onReject);
    this.ended(payload, command);
  }

  /**
   * Makes the host send this entity a command at a time. It replaces a timer or
   * schedule of the same name. A time after 2262-04-11 means never. If the time
   * is before 1970 or invalid, the host rejects the command with
   * invalid_argument.
   */
  setTimer(name: string, due: Instant, command: string, payload?: unknown): void {
    const at = nanosecondsOf(due);
    this.frame = frames.start(output.setTimer);
    frames.field(name);
    frames.putNanoseconds(at);
    frames.field(command);
    this.ended(payload, command);
  }

  /** Removes a timer or schedule, if there is one of that name. */
  cancelTimer(name: string): void { this.named(output.cancelTimer, name); }

  /**
   * Makes the host send this entity a command periodically, until cancelTimer.
   * Each call restarts the period, so call it only once. If the expression or
   * the zone is not valid, the command is rejected with invalid_argument: see
   * validSchedule.
   */
  schedule(name: string, schedule: Schedule): void {
    this.frame = frames.start(output.setSchedule);
    frames.field(name);
    frames.field(schedule.cron);
    frames.field(schedule.zone ?? "");
    frames.putByte(missedNumbers[schedule.missed ?? "once"]);
    frames.field(schedule.command);
    this.ended(schedule.payload, schedule.command);
  }

  /** Asks the host to remove the entity from memory after this command. */
  passivate(): void { frames.end(frames.start(output.passivate)); }

  /**
   * Ends the entity's life after this command's events. Its id can be used
   * again; the new entity starts from the initial state.
   */
  delete(): void { frames.end(frames.start(output.delete)); }

  private frame = 0;

  private sent(kind: number, entityType: string, entityID: string, command: string): void {
    this.frame = frames.start(kind);
    frames.field(entityType);
    frames.field(entityID);
    frames.field(command);
  }

  private ended(payload: unknown, command: string): void {
    if (payload !== undefined) frames.put(this.text(payload, "command", command));
    frames.end(this.frame);
  }

  private named(kind: number, name: string): void {
    frames.frame(kind, name);
  }

  private text(payload: unknown, noun: string, name: string): string {
    const written = json.write(payload);
    if (written === undefined) throw new TypeError(`the payload of ${noun} ${name} is a value that JSON cannot express`);
    return written;
  }
}
