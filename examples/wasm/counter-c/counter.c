// Counter, written only from abi/ABI.md: without SDK or C library. It behaves
// like the Go example counter, and its state has the same form.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef int i32;

#define EXPORT(name) __attribute__((export_name(#name)))
#define TEXT(s) (const u8 *)(s), (sizeof(s) - 1)

// Spans and frames

static u64 span(const u8 *bytes, u32 length) { return (u64)(u32)bytes << 32 | length; }

static u8 input[(1 << 20) + 1024];
static u8 output[1024];
static u32 written;

static void put(const u8 *bytes, u32 length) {
  for (u32 i = 0; i < length; i++) output[written++] = bytes[i];
}

static void put_number(u64 value, u32 bytes) {
  for (; bytes > 0; bytes--, value >>= 8) output[written++] = (u8)value;
}

// open_frame begins a frame; close_frame writes its length.
static u32 open_frame(u8 kind) {
  output[written++] = kind;
  put_number(0, 4);
  return written;
}

static void close_frame(u32 start) {
  u32 end = written;
  written = start - 4;
  put_number(end - start, 4);
  written = end;
}

static u64 get_number(const u8 *bytes, u32 count) {
  u64 value = 0;
  while (count-- > 0) value = value << 8 | bytes[count];
  return value;
}

typedef struct {
  u8 kind;
  u32 length;
  const u8 *bytes;
} frame;

// next reads the frame at *at, and returns 0 at the end of the input.
static i32 next(frame *f, u32 *at, u32 end) {
  if (end - *at < 5) return 0;
  f->kind = input[*at];
  f->length = (u32)get_number(input + *at + 1, 4);
  f->bytes = input + *at + 5;
  if (f->length > end - *at - 5) __builtin_trap();
  *at += 5 + f->length;
  return 1;
}

static i32 is(const u8 *bytes, u32 length, const u8 *text, u32 text_length) {
  if (length != text_length) return 0;
  for (u32 i = 0; i < length; i++)
    if (bytes[i] != text[i]) return 0;
  return 1;
}

// JSON: an object with one number, which may be in quotes

static void put_integer(i64 value) {
  u8 digits[20];
  u32 n = 0;
  u64 rest = value < 0 ? -(u64)value : (u64)value;
  do digits[n++] = (u8)('0' + rest % 10);
  while ((rest /= 10) > 0);
  if (value < 0) output[written++] = '-';
  while (n > 0) output[written++] = digits[--n];
}

static void put_object(const u8 *name, u32 length, i64 value) {
  put(TEXT("{\""));
  put(name, length);
  put(TEXT("\":"));
  put_integer(value);
  put(TEXT("}"));
}

// integer reads digits only; it returns 0 if there are none or they do not fit.
static i32 integer(const u8 *p, u32 length, i64 *value) {
  i32 negative = length > 0 && *p == '-';
  u64 most = negative ? 1ULL << 63 : (1ULL << 63) - 1;
  u64 sum = 0;
  if (negative) p++, length--;
  if (length == 0 || length > 19 || (*p == '0' && length > 1)) return 0;
  for (; length > 0; p++, length--) {
    if (*p < '0' || *p > '9') return 0;
    sum = sum * 10 + (*p - '0');
  }
  if (sum > most) return 0;
  *value = negative ? (i64)-sum : (i64)sum;
  return 1;
}

// member reads the value of {"name":value}.
static i32 member(const u8 *p, u32 length, const u8 *name, u32 name_length, i64 *value) {
  u32 before = name_length + 4; // {"name":
  if (length < before + 2 || p[0] != '{' || p[1] != '"' || p[length - 1] != '}') return 0;
  if (!is(p + 2, name_length, name, name_length) || p[name_length + 2] != '"' || p[name_length + 3] != ':') return 0;
  p += before, length -= before + 1;
  if (length >= 2 && p[0] == '"' && p[length - 1] == '"') p++, length -= 2;
  return integer(p, length, value);
}

// State: one total per entity, in a table after everything else in memory

extern u8 __heap_base;

static i64 *total(u64 entity) { return (i64 *)(((u32)&__heap_base + 7) & ~7u) + entity; }

static i32 room_for(u64 entity) {
  u64 end = (u64)(u32)total(0) + (entity + 1) * sizeof(i64);
  u64 have = (u64)__builtin_wasm_memory_size(0) << 16;
  return end <= have || __builtin_wasm_memory_grow(0, (u32)((end - have + 0xffff) >> 16)) != (u32)-1;
}

static void evolve(i64 *total, const u8 *type, u32 type_length, const u8 *payload, u32 length) {
  i64 amount;
  if (is(type, type_length, TEXT("added"))) {
    if (!member(payload, length, TEXT("amount"), &amount)) __builtin_trap();
    *total = (i64)((u64)*total + (u64)amount);
  } else if (is(type, type_length, TEXT("reset"))) {
    *total = 0;
  } else {
    __builtin_trap(); // an event that this version does not know
  }
}

// emit writes an event and applies the bytes that it has written to the state.
static void emit(i64 *total, const u8 *type, u32 type_length, i64 amount, i32 has_amount) {
  u32 start = open_frame(1);
  put_number(type_length, 2);
  put(type, type_length);
  u32 payload = written;
  if (has_amount) put_object(TEXT("amount"), amount);
  else put(TEXT("{}"));
  close_frame(start);
  evolve(total, type, type_length, output + payload, written - payload);
}

static u64 reply(i64 total) {
  u32 start = open_frame(2);
  put_object(TEXT("total"), total);
  close_frame(start);
  return span(output, written);
}

static u64 reject(const u8 *code, u32 code_length, const u8 *message, u32 length) {
  u32 start = open_frame(3);
  put_number(code_length, 2);
  put(code, code_length);
  put(message, length);
  close_frame(start);
  return span(output, written);
}

// The contract

EXPORT(hostd_abi) i32 abi(void) { return 1; }

EXPORT(hostd_describe) u64 describe(void) {
  static const char manifest[] =
      "{\"abi\":1,\"name\":\"counter-c\",\"version\":\"1.0.0\",\"entityTypes\":[{\"name\":\"counter\","
      "\"kind\":\"event-sourced\",\"encoding\":\"json\",\"commands\":[{\"name\":\"add\"},{\"name\":\"reset\"}],"
      "\"queries\":[{\"name\":\"total\"}],\"events\":[{\"type\":\"added\"},{\"type\":\"reset\"}]}]}";
  return span(TEXT(manifest));
}

EXPORT(hostd_buffer) u32 buffer(u32 size) { return size <= sizeof(input) ? (u32)input : 0; }

EXPORT(hostd_load) i32 load(u32 type, u64 entity, u32 length) {
  if (type != 0) return 1;
  if (!room_for(entity)) return 2;
  i64 loaded = 0;
  frame f;
  for (u32 at = 0; next(&f, &at, length);)
    if (f.kind == 2 && !member(f.bytes, f.length, TEXT("total"), &loaded)) return 1;
  *total(entity) = loaded;
  return 0;
}

EXPORT(hostd_apply) i32 apply(u64 entity, u32 length) {
  frame f;
  for (u32 at = 0; next(&f, &at, length);) {
    if (f.kind != 32) continue;
    if (f.length < 18) return 1;
    u32 type_length = (u32)get_number(f.bytes + 16, 2);
    if (type_length > f.length - 18) return 1;
    evolve(total(entity), f.bytes + 18, type_length, f.bytes + 18 + type_length, f.length - 18 - type_length);
  }
  return 0;
}

// request finds the name and payload of a command or query.
static void request(u32 length, frame *name, frame *payload) {
  frame f;
  name->length = payload->length = 0;
  for (u32 at = 0; next(&f, &at, length);) {
    if (f.kind == 16) *name = f;
    if (f.kind == 17) *payload = f;
  }
}

EXPORT(hostd_handle) u64 handle(u64 entity, u32 length) {
  frame name, payload;
  i64 *state = total(entity);
  i64 amount, sum;
  written = 0;
  request(length, &name, &payload);
  if (is(name.bytes, name.length, TEXT("reset"))) {
    emit(state, TEXT("reset"), 0, 0);
    return reply(*state);
  }
  if (!is(name.bytes, name.length, TEXT("add"))) return reject(TEXT("not_found"), TEXT("no such command"));
  if (!member(payload.bytes, payload.length, TEXT("amount"), &amount))
    return reject(TEXT("invalid_argument"), TEXT("the payload must be {\"amount\":INTEGER}"));
  if (__builtin_add_overflow(*state, amount, &sum)) return reject(TEXT("overflow"), TEXT("the total would not fit 64 bits"));
  emit(state, TEXT("added"), amount, 1);
  return reply(*state);
}

EXPORT(hostd_query) u64 query(u64 entity, u32 length) {
  frame name, payload;
  written = 0;
  request(length, &name, &payload);
  if (!is(name.bytes, name.length, TEXT("total"))) return reject(TEXT("not_found"), TEXT("no such query"));
  return reply(*total(entity));
}

EXPORT(hostd_snapshot) u64 snapshot(u64 entity) {
  written = 0;
  put_object(TEXT("total"), *total(entity));
  return span(output, written);
}

EXPORT(hostd_drop) void drop(u64 entity) { *total(entity) = 0; }
