import * as frames from "./frames.js";

// The kind of call that runs: loading has a constant clock, event functions
// have none.
type Phase = "load" | "evolve" | "query" | "handle" | "flow";
let phase: Phase = "load";

/** The clock and the random numbers of the function of a workflow. */
export interface FlowClock {
  milliseconds(): number;
  random(): number;
}

let flow: FlowClock;

/** Gives the scripts of a run its own clock and random numbers. */
export function enterFlow(of: FlowClock): Phase {
  flow = of;
  return enter("flow");
}

/** Sets the kind of call, and returns the previous one. */
export function enter(next: Phase): Phase {
  const before = phase;
  phase = next;
  return before;
}

/** The time of this call, in milliseconds since 1970. */
export function now(): number {
  if (phase === "evolve") {
    throw new Error("the clock is not available while events are applied: an event must have the same effect at each replay, so put the time into it");
  }
  if (phase === "flow") return flow.milliseconds();
  if (phase === "load") return 0;
  const at = frames.input.now;
  return Math.floor((frames.uint32(at, 4) * 2 ** 32 + frames.uint32(at, 0)) / 1e6);
}

// The random number generator of a command: sfc32.
let a = 0, b = 0, c = 0, counter = 0;
let seeded = false;

/** Makes the next command that draws a number start with its own seed. */
export function forgetSeed(): void {
  seeded = false;
}

function seed(low: number, high: number): void {
  a = low | 0;
  b = high | 0;
  c = 0x9e3779b9 | 0;
  counter = 1;
  seeded = true;
  for (let i = 0; i < 12; i++) draw();
}

function draw(): number {
  const t = (a + b | 0) + counter | 0;
  counter = counter + 1 | 0;
  a = b ^ b >>> 9;
  b = c + (c << 3) | 0;
  c = c << 21 | c >>> 11;
  c = c + t | 0;
  return t >>> 0;
}

/** The next number of the command's own random sequence, in [0, 1). */
export function random(): number {
  if (phase === "evolve") {
    throw new Error("random numbers are not available while events are applied: an event must have the same effect at each replay, so put the number into it");
  }
  if (phase === "flow") return flow.random();
  if (phase === "query") throw new Error("random numbers are not available in a query, because it may run more than once");
  if (!seeded) {
    if (phase === "handle") seed(frames.uint32(frames.input.seed, 0), frames.uint32(frames.input.seed, 4));
    else seed(0, 0);
  }
  return ((draw() >>> 5) * 2 ** 26 + (draw() >>> 6)) / 2 ** 53;
}

/**
 * Replaces the script's clock and random numbers by those of the call, and
 * removes what depends on garbage collection.
 */
export function install(): void {
  const NativeDate = Date;
  const hosted = new Proxy(NativeDate, {
    construct: (target, given, made) => Reflect.construct(target, given.length > 0 ? given : [now()], made) as object,
    apply: () => new NativeDate(now()).toString(),
  });
  NativeDate.now = now;
  NativeDate.prototype.constructor = hosted;
  const global = globalThis as unknown as Record<string, unknown>;
  global["Date"] = hosted;
  Math.random = random;
  for (const name of ["WeakRef", "FinalizationRegistry", "performance", "Atomics", "SharedArrayBuffer"]) delete global[name];
}
