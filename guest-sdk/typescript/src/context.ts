import * as clock from "./clock.js";
import type { Definition, Entity } from "./entity.js";
import * as frames from "./frames.js";
import * as json from "./json.js";
import { natives } from "./natives.js";

const { input, output } = frames;

/** Who called: see View.principal. */
export interface Principal {
  /** How the caller is known; anonymous is who has shown nothing. */
  kind: "token" | "jwt" | "certificate" | "anonymous";
  /** Unique within its kind, and empty for the anonymous. */
  name: string;
  groups: string[];
}

/** Who sent a command. */
export type Source =
  | { kind: "client" }
  | { kind: "timer" }
  | { kind: "entity"; entityType: string; entityID: string };

/** A time: a Date, milliseconds since 1970, or nanoseconds as a bigint. */
export type Instant = Date | number | bigint;

/** The commands of this entity that get the outcome of a send. */
export interface Answer {
  /** Its payload is the reply. */
  onReply: string;
  /** Its payload is {"code":...,"message":...}. */
  onReject: string;
}

/** A command that an entity gets again and again. */
export interface Schedule {
  /**
   * Either "@every" and a length of time, such as "@every 90s", or five fields of
   * the wall clock: minute, hour, day of the month, month, day of the week, such
   * as "0 3 * * mon-fri"; or @hourly, @daily, @weekly, @monthly, @yearly.
   */
  cron: string;
  /** The IANA name of the wall clock's time zone; UTC without it. */
  zone?: string;
  /** What becomes of ticks that could not be fired: once is one, late, for all. */
  missed?: "once" | "all" | "skip";
  command: string;
  payload?: unknown;
}

const missedNumbers = { once: 0, all: 1, skip: 2 };

// The latest time that the host has, on 2262-04-11: what is due then never is.
const never = 2n ** 63n - 1n;

// A time before 1970, or none, goes to the host as -1, and it rejects the command
// for it. An exception that nobody catches would be a fault of the module, although
// the time may be what a caller has sent.
function nanosecondsOf(at: Instant): bigint {
  if (typeof at !== "bigint") {
    const milliseconds = at instanceof Date ? at.getTime() : at;
    if (typeof milliseconds !== "number" || Number.isNaN(milliseconds) || milliseconds < 0) return -1n;
    at = milliseconds * 1e6 >= 2 ** 63 ? never : BigInt(Math.trunc(milliseconds)) * 1_000_000n;
  }
  return at < 0n ? -1n : at < never ? at : never;
}

/** What a query may see. It is valid during the call. */
export class View {
  /** Of the SDK. */
  protected entity!: Entity;
  protected definition!: Definition;

  /** Of the SDK: makes this the view of a call. */
  open(entity: Entity): void {
    this.entity = entity;
    this.definition = entity.definition;
  }

  get entityType(): string { return this.definition.name; }

  get entityID(): string { return this.entity.id; }

  /** The number of the entity's last event before this call. */
  get sequence(): number { return frames.uint64(input.sequence); }

  /** The time that the host fixed for this call; Date.now() is the same. */
  get now(): Date { return new Date(); }

  /** The nanoseconds since 1970 of this call. */
  get nanoseconds(): bigint { return frames.nanoseconds(input.now); }

  /**
   * Who called; undefined where nobody was asked, and for what entities and
   * timers send: who decides by owner refuses then.
   */
  get principal(): Principal | undefined {
    if (!frames.has(input.principal)) return undefined;
    const [kind, name, ...groups] = frames.fields(input.principal, 0);
    return { kind: kind as Principal["kind"], name: name!, groups };
  }

  /**
   * What operators have set for the entity's type under a name; undefined where
   * nothing is set. Events see no settings: put what was decided by one into the
   * event.
   */
  setting(name: string): string | undefined {
    const all = frames.fields(input.settings, 0);
    for (let i = 0; i < all.length; i += 2) if (all[i] === name) return all[i + 1];
    return undefined;
  }

  /** Writes a line to the node's log; console.log does, too. */
  log(level: "debug" | "info" | "warn" | "error", line: string): void {
    natives.log(levels.indexOf(level), line);
  }
}

const levels = ["debug", "info", "warn", "error"];

/** What a command may see and do. It is valid during the call. */
export class Context<E = any> extends View {
  /** The id under which this command takes effect once. */
  get commandID(): string { return frames.text(input.commandID); }

  /** Who sent this command. */
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
   * When the timer or the tick was due that made this command; undefined for a
   * command that no timer made.
   */
  get due(): Date | undefined {
    return frames.has(input.due) ? new Date(Number(frames.nanoseconds(input.due) / 1_000_000n)) : undefined;
  }

  /**
   * The next number of the command's own stream, from 0 up to 1, as Math.random:
   * the same command on the same state draws the same. Not fit for secrets.
   */
  random(): number { return clock.random(); }

  /**
   * Appends an event, and evolves the state by it before it returns. Streams of
   * a tag are readable across entities.
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

  /** Sends a command to another entity, exactly once, after this one is stored. */
  send(entityType: string, entityID: string, command: string, payload?: unknown): void {
    this.sent(output.send, entityType, entityID, command);
    this.ended(payload, command);
  }

  /** Is send, and the outcome comes back as a command. */
  sendWithAnswer(entityType: string, entityID: string, command: string, payload: unknown, answer: Answer): void {
    this.sent(output.sendWithAnswer, entityType, entityID, command);
    frames.field(answer.onReply);
    frames.field(answer.onReject);
    this.ended(payload, command);
  }

  /**
   * Has the host send this entity a command at a time. A timer or schedule of the
   * same name is replaced. A time later than 2262-04-11 is never; one before 1970,
   * and what is no time, has the host reject the command with invalid_argument.
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
   * Has the host send this entity a command again and again, until cancelTimer.
   * It starts a period anew, so set it once. An expression or a zone that is
   * none rejects the command with invalid_argument: see validSchedule.
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

  /** Asks the host to drop the entity from memory after this command. */
  passivate(): void { frames.end(frames.start(output.passivate)); }

  /**
   * Ends the entity's life after this command's events. Its id can be used
   * again; it then starts from the initial state.
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
    if (written === undefined) throw new TypeError(`the payload of ${noun} ${name} is nothing that JSON has`);
    return written;
  }
}
