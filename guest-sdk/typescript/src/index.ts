/**
 * The SDK for entities written in TypeScript or JavaScript. An entity type is a
 * state, and functions that decide on commands, apply events to the state and
 * answer queries:
 *
 *     const counter = entity("counter", { initial: () => ({ total: 0 }) })
 *       .event("added", schema({ amount: "integer" }), (s, e) => { s.total += e.amount; })
 *       .command("add", schema({ amount: "integer" }), (c, s, cmd) => {
 *         c.emit("added", { amount: cmd.amount });
 *         return { total: s.total };
 *       })
 *       .query("total", (_, s) => ({ total: s.total }));
 *
 *     serve("counter", "1.0.0", counter);
 *
 * Handlers are synchronous. `emit` encodes the event, decodes it from the text
 * that it wrote, and applies it to the state before it returns, so that a live
 * entity and a replayed one take the same path.
 */
export { entity, durable, transient, EntityType } from "./entity.js";
export type { CommandOptions, EventMap, Immutable, QueryOptions, TypeOptions } from "./entity.js";
export { Context, View } from "./context.js";
export type { Answer, Instant, Principal, Schedule, Source } from "./context.js";
export { reject, Rejection } from "./reject.js";
export { workflow, WorkflowType } from "./workflow.js";
export type { WorkflowOptions } from "./workflow.js";
export { Flow } from "./flow.js";
export type { CallOptions, Duration, Retry, RunOptions, WaitOptions } from "./flow.js";
export { validSchedule } from "./schedule.js";
export { any, int64, integer, map, none, nullable, number, oneOf, optional, schema, text } from "./schema.js";
export type { Bounds, Described, Infer, Literal, OptionalSchema, Schema, TypeOf } from "./schema.js";
export { serve } from "./runtime.js";
