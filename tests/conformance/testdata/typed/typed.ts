// Errors that the compiler must find before a module is built: it must reject
// each marked line below.
import { entity, int64, type Infer, integer, map, none, nullable, oneOf, schema, text } from "@hostd/guest";

const Order = schema({
  sku: text({ min: 1 }),
  quantity: integer({ min: 1 }),
  wrap: oneOf("paper", "foil"),
  gifts: [{ to: "string", note: "string?" }],
  prices: map("integer"),
  total: int64(),
  memo: nullable("string"),
  extra: "any",
});

const order: Infer<typeof Order> = {
  sku: "a", quantity: 1, wrap: "foil", gifts: [{ to: "b" }, { to: "c", note: "d" }], prices: { a: 1 }, total: 1n, memo: null, extra: 1,
};
// @ts-expect-error
order.wrap = "wood";
// @ts-expect-error
order.total = 1;
// @ts-expect-error
order.gifts.push({ note: "to nobody" });
// @ts-expect-error
order.prices["a"] = "1";
// @ts-expect-error
order.sku = undefined;

entity("shop", { initial: () => ({ open: true, orders: [] as string[] }) })
  .event("ordered", Order, (s, e) => { s.orders.push(e.sku); })
  .event("closed", (s) => { s.open = false; })
  .event("moved", (s, e: { to: string }) => { s.orders.push(e.to); })
  .command("order", Order, (c, s, cmd) => {
    c.emit("ordered", cmd, "tag");
    c.emit("moved", { to: "x" });
    // @ts-expect-error
    c.emit("orderd", cmd);
    // @ts-expect-error
    c.emit("moved", { to: 1 });
    // @ts-expect-error
    c.emit("ordered", { sku: "a" });
    // @ts-expect-error
    s.open = false;
    // @ts-expect-error
    s.orders.push("directly");
    // @ts-expect-error
    cmd.quantity = "1";
    return { orders: s.orders.length };
  }, { reply: schema({ orders: "integer" }) })
  // @ts-expect-error
  .command("odd", none, () => "text", { reply: schema({ orders: "integer" }) })
  // @ts-expect-error
  .upcast("never", 1, (old: unknown) => old)
  // @ts-expect-error
  .query("peek", (v) => v.emit("closed", {}));

// @ts-expect-error
schema({ sku: "text" });
