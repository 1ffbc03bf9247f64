// Mistakes of scripts, and the information that a call provides.
import { durable, entity, int64, reject, schema, serve, transient } from "@hostd/guest";
import { broken } from "./helper.js";

interface State { events: number; text?: string; list?: (string | null)[] }

const loaded = `${Date.now()} ${Math.random()}`;

const odd = entity<State>("odd", { initial: () => ({ events: 0 }), sends: ["other"] })
  .event("counted", (s) => { s.events++; })
  .event("clock", (s) => { s.events = Date.now(); })
  .event("made", (s) => { s.events = new Date().getTime(); })
  .event("random", (s) => { s.events = Math.random(); })
  .event("late", (async (s: State) => { s.events++; }) as (s: State) => void)
  .event("big", schema({ number: int64() }), (s, e) => { s.text = String(e.number * 2n); })
  .event("moved", (s, e: { to: string[] }) => { s.text = e.to.join("+"); })
  .event("listed", (s, e: { list: (string | undefined)[] }) => { s.list = e.list as string[]; })
  .upcast("moved", 1, (old: { to: string }) => ({ at: old.to }))
  .upcast("moved", 2, (old: { at: string }) => ({ to: [old.at] }))

  .command("count", (c) => { c.emit("counted", {}); })
  .command("clock", (c) => c.emit("clock", {}))
  .command("made", (c) => c.emit("made", {}))
  .command("random", (c) => c.emit("random", {}))
  .command("late", (c) => c.emit("late", {}))
  .command("big", schema({ number: int64() }), (c, s, { number }) => {
    c.emit("big", { number });
    return { text: s.text, number };
  })
  .command("move", (c, s, to: string[]) => {
    c.emit("moved", { to }, "first", "second");
    return s.text;
  })
  .command("broken", (_, s) => broken(s))
  .command("alias", (c, s) => {
    const list = ["a", undefined];
    c.emit("listed", { list });
    list.push("b");
    return s.list;
  })
  .command("thrown", () => { throw { no: "error" }; })
  .command("caused", () => { throw new Error("above", { cause: new RangeError("below") }); })
  .command("spin", () => { for (;;); })
  .command("deep", () => { const down = (n: number): number => down(n + 1) + 1; return down(0); })
  .command("nested", () => JSON.parse("[".repeat(200_000)))
  .command("caught", () => {
    const down = (n: number): number => {depth = n; return down(n + 1) + 1;}
    let depth = 0;
    try {
      return down(0);
    } catch (e) {
      return depth + (e as Error).name;
    }
  })
  .command("eat", () => { const all: string[] = []; for (let i = 0; ; i++) all.push("x".repeat(100_000) + i); })
  .command("async", async () => 1)
  .command("promise", () => { Promise.resolve(1).then(() => 2); return 1; })
  .command("unknown", (c) => c.emit("never" as "counted", {}))
  .command("nothing", () => (() => 1) as unknown)
  .command("reject-late", (c) => { c.emit("counted", {}); throw reject("late", "after an event"); })
  .command("world", (c) => ({
    now: c.now.toISOString(), nanoseconds: c.nanoseconds, date: Date.now(), zone: new Date(0).getTimezoneOffset(),
    numbers: [c.random(), Math.random()], id: c.entityID, type: c.entityType, sequence: c.sequence, command: c.commandID,
    source: c.source, due: c.due, principal: c.principal, limit: c.setting("limit"), lim: c.setting("lim"), loaded, gone: typeof WeakRef + typeof FinalizationRegistry,
  }))
  .command("all", (c) => {
    c.send("other", "a", "do", { n: 1 });
    c.send("other", "b", "do");
    c.sendWithAnswer("other", "ü", "ask", [], { onReply: "yes", onReject: "no" });
    c.setTimer("one", 1_700_000_000_123, "count");
    c.setTimer("two", 5n, "count", { x: "\ud83d\ude00" });
    c.cancelTimer("three");
    c.schedule("four", { cron: "0 3 * * *", zone: "Europe/Berlin", missed: "skip", command: "count" });
    c.passivate();
    c.delete();
    c.log("warn", "a line");
    console.log("another", { n: 1 }, new TypeError("t"));
  })
  .command("large", (c, _, n: number) => "x".repeat(n))
  .query("state", (_, s) => s)
  .query("setting", (v) => v.setting("limit") ?? "none")
  .query("draw", () => Math.random())
  .query("broken", (_, s) => broken(s));

const kept = durable<{ n: number; big: bigint }>("kept", {
  initial: () => ({ n: 0, big: 0n }),
  state: schema({ n: "integer", big: int64() }),
})
  .command("set", schema({ n: "integer" }), (_, s, cmd) => {
    s.n = cmd.n;
    s.big += 2n ** 60n;
    if (cmd.n < 0) throw reject("negative");
    return String(s.big);
  })
  .command("look", (_, s) => s.n);

const passing = transient<{ n: number }>("passing", { initial: () => ({ n: 0 }) })
  .command("up", (_, s) => ++s.n);

serve("odd", "1.0.0", odd, kept, passing);
