//! The cart of examples/wasm/cart, with the SDK for Rust.

use hostd::{json, reject, serve, Context, Entity, Rejection, View, HOUR};
use std::collections::BTreeMap;

const MAX_SKUS: usize = 100;
const MAX_QUANTITY: i64 = 1_000; // in one add
const MAX_OF_ONE: i64 = 10_000;
const MAX_PRICE: i64 = 1_000_000;
const MAX_SKU_BYTES: usize = 64;

const ABANDON: &str = "abandon";

json! { struct Item { price: i64, quantity: i64 } }
json! { struct Cart { checked_out as "checkedOut": bool, items: BTreeMap<String, Item> } }

json! { struct Add { price: i64, quantity: i64, sku: String } }
json! { struct Remove { sku: String } }
json! { struct Total { total: i64 } }
json! { struct Order { cart: String, total: i64 } }

json! { struct Added { price: i64, quantity: i64, sku: String } }
json! { struct Removed { sku: String } }
json! { struct CheckedOut { total: i64 } }
json! { struct Expired {} }

impl Cart {
    fn total(&self) -> Total {
        Total { total: self.items.values().map(|item| item.price * item.quantity).sum() }
    }

    fn still_open(&self) -> Result<(), Rejection> {
        if self.checked_out {
            return Err(reject("checked_out", "the cart is checked out"));
        }
        Ok(())
    }
}

fn is_sku(text: &str) -> bool {
    let rest = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-');
    text.len() <= MAX_SKU_BYTES && matches!(text.bytes().next(), Some(b'a'..=b'z')) && text.bytes().all(rest)
}

fn add(c: &mut Context<Cart>, cmd: Add) -> Result<Total, Rejection> {
    c.state().still_open()?;
    if !is_sku(&cmd.sku) || !(1..=MAX_QUANTITY).contains(&cmd.quantity) || !(0..=MAX_PRICE).contains(&cmd.price) {
        return Err(reject("invalid_item", "the item is out of bounds"));
    }
    let items = &c.state().items;
    let fits = match items.get(&cmd.sku) {
        None => items.len() < MAX_SKUS,
        Some(item) => item.quantity + cmd.quantity <= MAX_OF_ONE,
    };
    if !fits {
        return Err(reject("cart_full", "the cart has no room for it"));
    }
    c.emit(&Added { price: cmd.price, quantity: cmd.quantity, sku: cmd.sku });
    c.set_timer(ABANDON, c.now() + 24 * HOUR, "expire", &());
    Ok(c.state().total())
}

fn remove(c: &mut Context<Cart>, cmd: Remove) -> Result<Total, Rejection> {
    c.state().still_open()?;
    if !c.state().items.contains_key(&cmd.sku) {
        return Err(reject("unknown_sku", "the cart has none of it"));
    }
    c.emit(&Removed { sku: cmd.sku });
    if c.state().items.is_empty() {
        c.cancel_timer(ABANDON);
    }
    Ok(c.state().total())
}

fn check_out(c: &mut Context<Cart>, _: ()) -> Result<Total, Rejection> {
    c.state().still_open()?;
    if c.state().items.is_empty() {
        return Err(reject("empty_cart", "there is nothing to check out"));
    }
    let Total { total } = c.state().total();
    c.emit_tagged(&CheckedOut { total }, &["checkout"]);
    c.cancel_timer(ABANDON);
    let cart = c.entity_id();
    c.send("orders", cart, "place", &Order { cart: cart.to_string(), total });
    Ok(Total { total })
}

/// The command of the timer. A cart that is checked out or empty has no timer,
/// but the command of an earlier one may still arrive.
fn expire(c: &mut Context<Cart>, _: ()) -> Result<(), Rejection> {
    if !c.state().checked_out && !c.state().items.is_empty() {
        c.emit(&Expired {});
    }
    Ok(())
}

fn cart() -> Entity<Cart> {
    Entity::new("cart")
        .sends(&["orders"])
        .state_version(1)
        .event("added", |s: &mut Cart, e: Added| {
            let item = s.items.entry(e.sku).or_default();
            item.price = e.price;
            item.quantity += e.quantity;
        })
        .event("removed", |s, e: Removed| {
            s.items.remove(&e.sku);
        })
        .event("checkedOut", |s, _: CheckedOut| s.checked_out = true)
        .event("expired", |s, _: Expired| s.items.clear())
        .command("add", add)
        .command("remove", remove)
        .command("checkout", check_out)
        .internal("expire", expire)
        .query("total", |_: &View, s, _: ()| Ok(s.total()))
}

serve!("cart-rust", "1.0.0", cart());
