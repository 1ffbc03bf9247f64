// The cart of examples/wasm/cart, with the SDK for C.

#include "hostd.h"

#define MAX_SKUS 100
#define MAX_QUANTITY 1000 // of one add
#define MAX_OF_ONE 10000
#define MAX_PRICE 1000000
#define MAX_SKU_BYTES 64

// State: items sorted by SKU.

typedef struct {
  hostd_text sku;
  int64_t price, quantity;
} item;

typedef struct {
  bool checked_out;
  uint32_t count, room;
  item *items;
} cart;

// Payloads

typedef struct {
  int64_t price, quantity;
  hostd_text sku;
} add;

typedef struct {
  hostd_text sku;
} sku;

typedef struct {
  int64_t total;
} total;

typedef struct {
  hostd_text cart;
  int64_t total;
} order;

static const hostd_field item_fields[] = {HOSTD_I64(item, price), HOSTD_I64(item, quantity), HOSTD_END};
static const hostd_field add_fields[] = {HOSTD_I64(add, price), HOSTD_I64(add, quantity), HOSTD_TEXT(add, sku), HOSTD_END};
static const hostd_field sku_fields[] = {HOSTD_TEXT(sku, sku), HOSTD_END};
static const hostd_field total_fields[] = {HOSTD_I64(total, total), HOSTD_END};
static const hostd_field order_fields[] = {HOSTD_TEXT(order, cart), HOSTD_I64(order, total), HOSTD_END};

// place returns the index of an SKU, or where to insert it.
static uint32_t place(const cart *c, hostd_text sku, bool *there) {
  uint32_t low = 0, high = c->count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (hostd_compare(c->items[middle].sku, sku) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  *there = low < c->count && hostd_compare(c->items[low].sku, sku) == 0;
  return low;
}

// put inserts an SKU that is not in the cart yet.
static item *put(cart *c, hostd_text sku) {
  bool there;
  uint32_t at = place(c, sku, &there);
  if (there) return &c->items[at];
  if (c->count == c->room) {
    uint32_t room = c->room ? c->room * 2 : 4;
    c->items = hostd_resize(c->items, c->room * sizeof(item), room * sizeof(item));
    c->room = room;
  }
  for (uint32_t i = c->count++; i > at; i--) c->items[i] = c->items[i - 1];
  c->items[at] = (item){0};
  hostd_keep(&c->items[at].sku, sku);
  return &c->items[at];
}

static total sum(const cart *c) {
  total t = {0};
  for (uint32_t i = 0; i < c->count; i++) t.total += c->items[i].price * c->items[i].quantity;
  return t;
}

static void clear(cart *c) {
  for (uint32_t i = 0; i < c->count; i++) hostd_free(c->items[i].sku.at);
  hostd_free(c->items);
  c->items = NULL;
  c->count = c->room = 0;
}

static void write_cart(const void *state) {
  const cart *c = state;
  hostd_json_open('{');
  hostd_json_member(HOSTD_TEXT_OF("checkedOut"));
  hostd_json_bool(c->checked_out);
  hostd_json_member(HOSTD_TEXT_OF("items"));
  hostd_json_open('{');
  for (uint32_t i = 0; i < c->count; i++) {
    hostd_json_member(c->items[i].sku);
    hostd_json_struct(item_fields, &c->items[i]);
  }
  hostd_json_close('}');
  hostd_json_close('}');
}

static bool read_cart(void *state, hostd_json snapshot) {
  cart *c = state;
  hostd_iterator members = {snapshot, NULL};
  hostd_text name, sku;
  hostd_json value, each;
  while (hostd_next(&members, &name, &value)) {
    if (hostd_is(name, "checkedOut") && !hostd_get_bool(value, &c->checked_out)) return false;
    if (!hostd_is(name, "items")) continue;
    hostd_iterator items = {value, NULL};
    while (hostd_next(&items, &sku, &each))
      if (!hostd_get_struct(each, item_fields, put(c, sku))) return false;
  }
  return *snapshot.at == '{';
}

static void drop_cart(void *state) { clear(state); }

// Events

static void added(void *state, const void *event) {
  const add *e = event;
  item *i = put(state, e->sku);
  i->price = e->price;
  i->quantity += e->quantity;
}

static void removed(void *state, const void *event) {
  cart *c = state;
  bool there;
  uint32_t at = place(c, ((const sku *)event)->sku, &there);
  if (!there) return;
  hostd_free(c->items[at].sku.at);
  for (c->count--; at < c->count; at++) c->items[at] = c->items[at + 1];
}

static void checked_out(void *state, const void *event) {
  (void)event;
  ((cart *)state)->checked_out = true;
}

static void expired(void *state, const void *event) {
  (void)event;
  clear(state);
}

static const hostd_event events[] = {
    {"added", added, add_fields},
    {"removed", removed, sku_fields},
    {"checkedOut", checked_out, total_fields},
    {"expired", expired, hostd_no_fields},
    {0},
};

// Commands

static bool is_sku(hostd_text text) {
  if (text.length < 1 || text.length > MAX_SKU_BYTES) return false;
  for (uint32_t i = 0; i < text.length; i++) {
    char c = text.at[i];
    bool letter = c >= 'a' && c <= 'z', digit = c >= '0' && c <= '9';
    if (!letter && (i == 0 || (!digit && c != '-'))) return false;
  }
  return true;
}

static bool is_open(hostd_call *c, const cart *s) {
  if (s->checked_out) hostd_reject(c, "checked_out", "the cart is checked out");
  return !s->checked_out;
}

static void reply(hostd_call *c, const cart *s) {
  total t = sum(s);
  hostd_reply(c, &t);
}

static void handle_add(hostd_call *c, void *state, const void *command) {
  const cart *s = state;
  const add *cmd = command;
  if (!is_open(c, s)) return;
  if (!is_sku(cmd->sku) || cmd->quantity < 1 || cmd->quantity > MAX_QUANTITY || cmd->price < 0 || cmd->price > MAX_PRICE) {
    hostd_reject(c, "invalid_item", "the item is out of bounds");
    return;
  }
  bool there;
  uint32_t at = place(s, cmd->sku, &there);
  if (there ? s->items[at].quantity + cmd->quantity > MAX_OF_ONE : s->count == MAX_SKUS) {
    hostd_reject(c, "cart_full", "the cart has no room for it");
    return;
  }
  hostd_emit(c, "added", cmd);
  hostd_set_timer(c, "abandon", c->now + 24 * HOSTD_HOUR, "expire", NULL, NULL);
  reply(c, s);
}

static void handle_remove(hostd_call *c, void *state, const void *command) {
  const cart *s = state;
  bool there;
  if (!is_open(c, s)) return;
  place(s, ((const sku *)command)->sku, &there);
  if (!there) {
    hostd_reject(c, "unknown_sku", "the cart has none of it");
    return;
  }
  hostd_emit(c, "removed", command);
  if (s->count == 0) hostd_cancel_timer(c, "abandon");
  reply(c, s);
}

static void handle_checkout(hostd_call *c, void *state, const void *command) {
  const cart *s = state;
  (void)command;
  if (!is_open(c, s)) return;
  if (s->count == 0) {
    hostd_reject(c, "empty_cart", "there is nothing to check out");
    return;
  }
  total t = sum(s);
  hostd_emit(c, "checkedOut", &t);
  hostd_tag(c, "checkout");
  hostd_cancel_timer(c, "abandon");
  hostd_send(c, "orders", c->entity_id, "place", order_fields, &(order){c->entity_id, t.total});
  hostd_reply(c, &t);
}

// The command of the timer. A cart that is checked out or empty has no timer,
// but the command of an earlier one may still arrive.
static void handle_expire(hostd_call *c, void *state, const void *command) {
  const cart *s = state;
  (void)command;
  if (!s->checked_out && s->count > 0) hostd_emit(c, "expired", NULL);
}

static const hostd_command commands[] = {
    {"add", handle_add, add_fields, total_fields},
    {"remove", handle_remove, sku_fields, total_fields},
    {"checkout", handle_checkout, NULL, total_fields},
    {.name = "expire", .handle = handle_expire, .internal = true},
    {0},
};

static void answer_total(hostd_call *c, const void *state, const void *query) {
  (void)query;
  reply(c, state);
}

static const hostd_query queries[] = {{"total", answer_total, NULL, total_fields}, {0}};

static const hostd_type types[] = {
    {
        .name = "cart",
        .state_size = sizeof(cart),
        .read = read_cart,
        .write = write_cart,
        .drop = drop_cart,
        .events = events,
        .commands = commands,
        .queries = queries,
        .options = "\"sends\":[\"orders\"],\"stateVersion\":1",
        .state_schema = "{\"type\":\"object\",\"properties\":{\"checkedOut\":{\"type\":\"boolean\"},\"items\":{\"type\":\"object\"}}}",
    },
    {0},
};

HOSTD_SERVE("cart-c", "1.0.0", types)
