import { entity, int64, map, none, reject, schema, serve, text } from "@hostd/guest";

// Limits of a cart.
const maxSKUs = 100;
const maxQuantity = 1_000; // in one add
const maxOfOne = 10_000;
const maxPrice = 1_000_000;

const abandonTimer = "abandon";
const abandonAfter = 24n * 3_600_000_000_000n; // nanoseconds

const Item = schema({ price: "integer", quantity: "integer" });
const State = schema({ checkedOut: "boolean", items: map(Item) });
const Total = schema({ total: "integer" });

// A missing member is 0 or an empty string, as in all carts, and therefore out
// of range.
const Add = schema({
  price: int64({ default: 0n, description: "of one" }),
  quantity: int64({ default: 0n }),
  sku: text({ default: "" }),
});
const Remove = schema({ sku: text({ default: "" }) });

const Added = schema({ price: "integer", quantity: "integer", sku: "string" });
const Removed = schema({ sku: "string" });
const Expired = schema({});

type Items = Record<string, { price: number; quantity: number }>;

/** A shopping cart: the example that every SDK has. */
export const cart = entity("cart", {
  initial: () => ({ checkedOut: false, items: {} as Items }),
  state: State,
  stateVersion: 1,
  sends: ["orders"],
})
  .event("added", Added, (s, e) => {
    const had = s.items[e.sku];
    const item = { price: e.price, quantity: (had?.quantity ?? 0) + e.quantity };
    if (had) s.items[e.sku] = item;
    else s.items = inserted(s.items, e.sku, item);
  })
  .event("removed", Removed, (s, e) => { delete s.items[e.sku]; })
  .event("checkedOut", Total, (s) => { s.checkedOut = true; })
  .event("expired", Expired, (s) => { s.items = {}; })

  .command("add", Add, (c, s, cmd) => {
    const item = Object.hasOwn(s.items, cmd.sku) ? s.items[cmd.sku] : undefined;
    const { quantity, price } = cmd;
    if (s.checkedOut) throw checkedOut();
    if (!/^[a-z][a-z0-9-]{0,63}$/.test(cmd.sku) || quantity < 1 || quantity > maxQuantity || price < 0 || price > maxPrice) {
      throw reject("invalid_item", "the item is out of bounds");
    }
    if (!item && Object.keys(s.items).length === maxSKUs || (item?.quantity ?? 0) + Number(quantity) > maxOfOne) {
      throw reject("cart_full", "the cart has no room for it");
    }
    c.emit("added", { price: Number(price), quantity: Number(quantity), sku: cmd.sku });
    c.setTimer(abandonTimer, c.nanoseconds + abandonAfter, "expire");
    return { total: total(s.items) };
  }, { reply: Total })

  .command("remove", Remove, (c, s, cmd) => {
    if (s.checkedOut) throw checkedOut();
    if (!Object.hasOwn(s.items, cmd.sku)) throw reject("unknown_sku", "the cart has none of it");
    c.emit("removed", { sku: cmd.sku });
    if (Object.keys(s.items).length === 0) c.cancelTimer(abandonTimer);
    return { total: total(s.items) };
  }, { reply: Total })

  .command("checkout", none, (c, s) => {
    if (s.checkedOut) throw checkedOut();
    if (Object.keys(s.items).length === 0) throw reject("empty_cart", "there is nothing to check out");
    const sum = { total: total(s.items) };
    c.emit("checkedOut", sum, "checkout");
    c.cancelTimer(abandonTimer);
    c.send("orders", c.entityID, "place", { cart: c.entityID, ...sum });
    return sum;
  }, { reply: Total })

  // A cart that is checked out or empty has no timer, but the command of an
  // earlier one may still arrive.
  .command("expire", none, (c, s) => {
    if (!s.checkedOut && Object.keys(s.items).length > 0) c.emit("expired", {});
  }, { internal: true })

  .query("total", none, (_, s) => ({ total: total(s.items) }), { reply: Total });

function checkedOut(): Error {
  return reject("checked_out", "the cart is checked out");
}

// An object keeps its members in the order of insertion, but the items of a
// cart must be sorted by SKU.
function inserted(items: Items, sku: string, item: Items[string]): Items {
  const out: Items = {};
  let done = false;
  for (const name in items) {
    if (!done && name > sku) {
      out[sku] = item;
      done = true;
    }
    out[name] = items[name]!;
  }
  if (!done) out[sku] = item;
  return out;
}

function total(items: { readonly [sku: string]: { readonly price: number; readonly quantity: number } }): number {
  let sum = 0;
  for (const { price, quantity } of Object.values(items)) sum += price * quantity;
  return sum;
}

serve("cart-ts", "1.0.0", cart);
