import { entity, integer, reject, schema, serve } from "@hostd/guest";

const Amount = schema({ amount: integer({ description: "what is added, which may be below 0" }) });
const Total = schema({ total: "integer" });

/** The smallest entity: a total, to which commands add. */
export const counter = entity("counter", { initial: () => ({ total: 0 }), state: Total })
  .event("added", Amount, (s, e) => { s.total += e.amount; })
  .event("reset", (s) => { s.total = 0; })
  .command("add", Amount, (c, s, cmd) => {
    if (!Number.isSafeInteger(s.total + cmd.amount)) throw reject("overflow", "the total would not fit 53 bits");
    c.emit("added", { amount: cmd.amount });
    return { total: s.total };
  }, { reply: Total })
  .command("reset", (c, s) => {
    c.emit("reset", {});
    return { total: s.total };
  }, { reply: Total })
  .query("total", (_, s) => ({ total: s.total }), { reply: Total });

serve("counter-ts", "1.0.0", counter);
