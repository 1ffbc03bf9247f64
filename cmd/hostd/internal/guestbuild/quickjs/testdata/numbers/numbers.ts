// What scripts make of numbers.
import { entity, int64, integer, number, schema, serve, validSchedule } from "@hostd/guest";

serve("numbers", "1.0.0", entity<{ v?: unknown }>("numbers")
  .event("kept", (s, e: { v: unknown }) => { s.v = e.v; })
  .command("any", (c, s, v: unknown) => { c.emit("kept", { v }); return s.v; })
  .command("integer", schema({ v: integer() }), (_, __, { v }) => v)
  .command("int64", schema({ v: int64() }), (_, __, { v }) => v)
  .command("number", schema({ v: number() }), (_, __, { v }) => v)
  .command("half", (c, s) => { c.emit("kept", { v: "😀".slice(0, 1) + "\\ud800" }); return s.v; })
  .command("at", (c, _, at: { date?: string; ms?: number; ns?: string; text?: string }) => {
    const due = at.date ? new Date(at.date) : at.ns ? BigInt(at.ns) : at.ms;
    c.setTimer("t", due!, "any");
    return "set";
  })
  .command("schedules", (_, __, all: string[]) => all.map(validSchedule))
  .command("names", (c, _, n: number) => { c.setTimer("t".repeat(n), 1, "any"); c.send("other", "ü".repeat(n), "do"); return n; })
  .command("own", () => JSON.stringify([2n ** 60n, 1n])));
