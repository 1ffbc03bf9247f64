// The cart of examples/wasm/cart, with the SDK for AssemblyScript.

import { Context, Entity, Fields, HOUR, Json, None, Table, View, serve } from "hostd";
export * from "hostd-exports";

const MAX_SKUS = 100;
const MAX_QUANTITY: i64 = 1_000; // in one add
const MAX_OF_ONE: i64 = 10_000;
const MAX_PRICE: i64 = 1_000_000;
const MAX_SKU_BYTES = 64;

const ABANDON = "abandon";

class Item extends Json {
  price: i64 = 0;
  quantity: i64 = 0;

  fields(f: Fields): void {
    this.price = f.i64("price", this.price);
    this.quantity = f.i64("quantity", this.quantity);
  }
}

class State extends Json {
  checkedOut: bool = false;
  items: Table<Item> = new Table<Item>();

  fields(f: Fields): void {
    this.checkedOut = f.bool("checkedOut", this.checkedOut);
    this.items = f.table<Item>("items", this.items);
  }

  total(): Total {
    const made = new Total();
    for (let i = 0; i < this.items.size; i++) {
      const item = this.items.at(i);
      made.total += item.price * item.quantity;
    }
    return made;
  }
}

class Add extends Json {
  price: i64 = 0;
  quantity: i64 = 0;
  sku: string = "";

  fields(f: Fields): void {
    this.price = f.i64("price", this.price);
    this.quantity = f.i64("quantity", this.quantity);
    this.sku = f.text("sku", this.sku);
  }
}

class Remove extends Json {
  sku: string = "";

  fields(f: Fields): void {
    this.sku = f.text("sku", this.sku);
  }
}

class Total extends Json {
  total: i64 = 0;

  fields(f: Fields): void {
    this.total = f.i64("total", this.total);
  }
}

class Order extends Json {
  cart: string = "";
  total: i64 = 0;

  fields(f: Fields): void {
    this.cart = f.text("cart", this.cart);
    this.total = f.i64("total", this.total);
  }
}

// Events

class Added extends Add {}

class Removed extends Remove {}

class CheckedOut extends Total {}

class Expired extends Json {
  fields(f: Fields): void {}
}

function isSKU(text: string): bool {
  const n = text.length;
  if (n < 1 || n > MAX_SKU_BYTES) return false;
  for (let i = 0; i < n; i++) {
    const c = text.charCodeAt(i), letter = c >= 0x61 && c <= 0x7a, digit = c >= 0x30 && c <= 0x39;
    if (!letter && (i == 0 || (!digit && c != 0x2d))) return false;
  }
  return true;
}

function closed(c: Context<State>): Total | null {
  return c.reject<Total>("checked_out", "the cart is checked out");
}

function add(c: Context<State>, cmd: Add): Total | null {
  const s = c.state;
  if (s.checkedOut) return closed(c);
  if (!isSKU(cmd.sku) || cmd.quantity < 1 || cmd.quantity > MAX_QUANTITY || cmd.price < 0 || cmd.price > MAX_PRICE) {
    return c.reject<Total>("invalid_item", "the item is out of bounds");
  }
  const fits = s.items.has(cmd.sku) ? s.items.get(cmd.sku).quantity + cmd.quantity <= MAX_OF_ONE : s.items.size < MAX_SKUS;
  if (!fits) return c.reject<Total>("cart_full", "the cart has no room for it");
  const event = new Added();
  event.price = cmd.price;
  event.quantity = cmd.quantity;
  event.sku = cmd.sku;
  c.emit(event);
  c.setTimer(ABANDON, c.now + 24 * HOUR, "expire", null);
  return s.total();
}

function remove(c: Context<State>, cmd: Remove): Total | null {
  const s = c.state;
  if (s.checkedOut) return closed(c);
  if (!s.items.has(cmd.sku)) return c.reject<Total>("unknown_sku", "the cart has none of it");
  const event = new Removed();
  event.sku = cmd.sku;
  c.emit(event);
  if (s.items.size == 0) c.cancelTimer(ABANDON);
  return s.total();
}

function checkOut(c: Context<State>, _: None): Total | null {
  const s = c.state;
  if (s.checkedOut) return closed(c);
  if (s.items.size == 0) return c.reject<Total>("empty_cart", "there is nothing to check out");
  const total = s.total(), event = new CheckedOut(), order = new Order();
  event.total = order.total = total.total;
  c.emit(event);
  c.tag("checkout");
  c.cancelTimer(ABANDON);
  order.cart = c.entityID;
  c.send("orders", c.entityID, "place", order);
  return total;
}

// The command of the timer. A cart that is checked out or empty has no timer,
// but the command of an earlier one may still arrive.
function expire(c: Context<State>, _: None): None | null {
  if (!c.state.checkedOut && c.state.items.size > 0) c.emit(new Expired());
  return null;
}

function onAdded(s: State, e: Added): void {
  const item = s.items.has(e.sku) ? s.items.get(e.sku) : new Item();
  item.price = e.price;
  item.quantity += e.quantity;
  s.items.set(e.sku, item);
}

const cart = new Entity<State>("cart")
  .manifest('"sends":["orders"],"stateVersion":1')
  .event<Added>("added", onAdded)
  .event<Removed>("removed", (s: State, e: Removed) => s.items.delete(e.sku))
  .event<CheckedOut>("checkedOut", (s: State, e: CheckedOut) => { s.checkedOut = true; })
  .event<Expired>("expired", (s: State, e: Expired) => s.items.clear())
  .command<Add, Total>("add", add)
  .command<Remove, Total>("remove", remove)
  .command<None, Total>("checkout", checkOut)
  .internal<None, None>("expire", expire)
  .query<None, Total>("total", (v: View, s: State, q: None) => s.total());

serve("cart-as", "1.0.0", [cart]);
