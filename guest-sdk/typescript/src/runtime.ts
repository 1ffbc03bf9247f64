import * as clock from "./clock.js";
import { Context, View } from "./context.js";
import { type Definition, type Entity, synchronous } from "./entity.js";
import * as frames from "./frames.js";
import * as json from "./json.js";
import { natives } from "./natives.js";
import { invalidPayload, Rejection, unknownName } from "./reject.js";
import { Misfit, none, type Schema } from "./schema.js";
import { describe } from "./trace.js";

const { input, output } = frames;

const abi = 1;

// Results of a load.
const done = 0, unreadable = 1, noRoom = 2;

interface Served {
  name: string;
  version: string;
  types: Definition[];
}

let served: Served | undefined;
const entities: (Entity | undefined)[] = []; // by handle
const context = new Context();
const view = new View();

/**
 * Makes entity types the module's; their order must never change. Call it once,
 * while the script is loaded.
 */
export function serve(name: string, version: string, ...types: { readonly definition: Definition }[]): void {
  if (served) throw new Error("serve is called twice");
  if (types.length === 0) throw new TypeError("a module needs an entity type");
  const names = new Set<string>();
  for (const { definition } of types) {
    if (names.has(definition.name)) throw new TypeError(`entity type ${definition.name} is registered twice`);
    names.add(definition.name);
    definition.link();
  }
  served = { name, version, types: types.map((t) => t.definition) };
}

function module(): Served {
  if (!served) throw new Error("the script never called serve");
  return served;
}

function entityOf(handle: number): Entity {
  const entity = entities[handle];
  if (!entity) throw new Error("no entity has this handle");
  return entity;
}

function load(handle: number, length: number, type: number): number {
  const definition = module().types[type];
  if (!definition) throw new Error("load of an unknown entity type");
  frames.read(length);
  const id = frames.text(input.entityID);
  let state: unknown;
  if (definition.runs) {
    state = definition.runs.load(id, frames.has(input.snapshot) ? frames.text(input.snapshot) : undefined);
    if (!state) return unreadable;
  } else if (frames.has(input.snapshot)) {
    try {
      const found = definition.read(frames.json(input.snapshot), frames.uint64(input.stateVersion));
      if (!found) return unreadable;
      state = found.state;
    } catch (e) {
      if (e instanceof SyntaxError || e instanceof Misfit) return unreadable;
      throw e;
    }
  } else {
    state = definition.initial();
  }
  // Handles are dense, so holes in the list are soon filled.
  while (entities.length < handle) entities.push(undefined);
  entities[handle] = { definition, id, state };
  return done;
}

function apply(handle: number, length: number): number {
  const entity = entityOf(handle);
  const runs = entity.definition.runs;
  if (runs) frames.eachEvent(length, (type, payload) => runs.apply(entity.state, type, payload, frames.eventTime()), true);
  else frames.eachEvent(length, (type, payload) => entity.definition.apply(entity, type, payload));
  return 0;
}

// Returns the events of the input in their current form.
function upcast(type: number, length: number): number {
  const definition = module().types[type];
  if (!definition) throw new Error("upcast of an unknown entity type");
  frames.reset();
  frames.eachEvent(length, (stored, payload) => {
    const [name, value] = definition.newest(stored, payload);
    const frame = frames.start(output.event);
    frames.field(name);
    frames.put(name === stored ? frames.eventText() : json.write(value)!);
    frames.end(frame);
  });
  return frames.length();
}

function stateOf(entity: Entity): string {
  if (entity.definition.runs) return entity.definition.runs.text(entity.state);
  const text = json.write(entity.state);
  if (text === undefined) throw new TypeError(`the state of ${entity.definition.name} is a value that JSON cannot express`);
  return text;
}

function handle(handle: number, length: number): number {
  const entity = entityOf(handle);
  const definition = entity.definition;
  begin("handle", length);
  context.open(entity);
  const inPlace = definition.kind === "durable-state" || definition.kind === "transient";
  const before = inPlace ? stateOf(entity) : "";
  const exact = json.isExact();
  try {
    run(entity, "command", context);
  } catch (e) {
    if (inPlace) entity.state = definition.revive(json.read(before, exact));
    refuse(e);
    return frames.length();
  }
  definition.runs?.progress(entity.state);
  if (definition.kind === "durable-state") {
    const after = stateOf(entity);
    if (after !== before) {
      frames.frame(output.state, after);
    }
  }
  return frames.length();
}

function query(handle: number, length: number): number {
  const entity = entityOf(handle);
  begin("query", length);
  view.open(entity);
  try {
    run(entity, "query", view);
  } catch (e) {
    refuse(e);
  }
  return frames.length();
}

function begin(phase: "handle" | "query", length: number): void {
  frames.read(length);
  frames.reset();
  clock.enter(phase);
  clock.forgetSeed();
}

// Runs a command or query and writes its reply.
function run(entity: Entity, noun: "command" | "query", context: View): void {
  const name = frames.text(input.name);
  const handler = (noun === "command" ? entity.definition.commands : entity.definition.queries).get(name);
  if (!handler) throw new Rejection(unknownName, "no such " + noun);
  const reply = synchronous(handler.run(context, entity.state, handler.encoded ? undefined : payloadOf(handler.schema)), noun, name);
  if (reply === undefined) return;
  if (reply instanceof json.Raw) {
    frames.frame(output.reply, reply.text);
    return;
  }
  const text = json.write(reply);
  if (text === undefined) throw new TypeError(`the reply of ${noun} ${name} is a value that JSON cannot express`);
  frames.frame(output.reply, text);
}

function payloadOf(schema: Schema<unknown> | undefined): unknown {
  if (schema === none) return undefined;
  try {
    const payload = frames.json(input.payload);
    return schema ? schema.read(payload ?? {}, "") : payload; // no payload is like an object without members
  } catch (e) {
    if (e instanceof SyntaxError || e instanceof Misfit) throw new Rejection(invalidPayload, e.message);
    throw e;
  }
}

// Writes a rejection; any other exception is a fault.
function refuse(e: unknown): void {
  if (!(e instanceof Rejection)) throw e;
  const frame = frames.start(output.reject);
  frames.field(e.code);
  frames.put(e.message);
  frames.end(frame);
}

// The function that the host's calls are passed to. hostd's glue code knows the
// numbers.
function call(number: number, first: any, length: number, type: number): number {
  clock.enter("evolve"); // only two calls have a clock
  try {
    switch (number) {
      case 0: {
        frames.reset();
        const { name, version, types } = module();
        frames.put(JSON.stringify({ abi, name, version, entityTypes: types.map((t) => t.describe()) }));
        return frames.length();
      }
      case 1: return frames.growInput(length);
      case 2: return load(first, length, type);
      case 3: return apply(first, length);
      case 4: return handle(first, length);
      case 5: return query(first, length);
      case 6:
        frames.reset();
        frames.put(stateOf(entityOf(first)));
        return frames.length();
      case 7: {
        const entity = entities[first] as Entity | undefined;
        entity?.definition.runs?.release(entity.state);
        entities[first] = undefined;
        return 0;
      }
      case 9: return upcast(first, length);
      case 8: // the script threw while it was loaded
        describe(first);
        return -1;
    }
    throw new Error(`the host made call ${number}, which this SDK does not support`);
  } catch (e) {
    if (number === 2 && isOutOfMemory(e)) return noRoom;
    describe(e);
    return -1;
  }
}

function isOutOfMemory(e: unknown): boolean {
  return e instanceof Error && e.message === "out of memory";
}

declare global {
  // A global var, because the types of browsers and of Node.js, which a project
  // may use too, declare console so, and TypeScript merges the declarations.
  /** The console of scripts: it writes lines to the node's log. */
  interface Console {
    debug(...values: unknown[]): void;
    /** Same as info. */
    log(...values: unknown[]): void;
    info(...values: unknown[]): void;
    warn(...values: unknown[]): void;
    error(...values: unknown[]): void;
  }
  var console: Console;
}

function installConsole(): void {
  const line = (level: number) => (...values: unknown[]): void => natives.log(level, values.map(show).join(" "));
  globalThis.console = { debug: line(0), log: line(1), info: line(1), warn: line(2), error: line(3) } as Console;
}

function show(value: unknown): string {
  if (typeof value === "string") return value;
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}

clock.install();
json.installBigInt();
installConsole();
frames.begin();
natives.serve(call);
