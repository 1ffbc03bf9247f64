// A guest with a command for every fault in abi/ABI.md. It was written from that
// page only, without an SDK or a C library. Its state is the number of events.
// Each command is a fault, except "add", which emits an event, and the commands
// below "No faults".

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

#define EXPORT(name) __attribute__((export_name(#name)))
#define IMPORT(module, name) __attribute__((import_module(#module), import_name(#name)))

IMPORT(hostd, log) void host_log(i32 level, const u8 *text, u32 length);
IMPORT(hostd, now) u64 host_now(void);
IMPORT(wasi_snapshot_preview1, proc_exit) void proc_exit(i32 code);

static u64 span(u32 at, u32 length) { return (u64)at << 32 | length; }

static u8 input[(1 << 20) + 1024];
static u8 output[3 << 20];
static u32 written;

// The state of an entity, and counters of the instance for tests.
static u64 counts[4096];
static u8 is_loaded[4096];
static u32 loaded, handled;

static u64 number(const u8 *bytes, u32 count) {
  u64 value = 0;
  while (count-- > 0) value = value << 8 | bytes[count];
  return value;
}

static void put_number(u64 value, u32 bytes) {
  for (; bytes > 0; bytes--, value >>= 8) output[written++] = (u8)value;
}

static u32 length_of(const char *text) {
  u32 n = 0;
  while (text[n]) n++;
  return n;
}

static void put_text(const char *text) {
  put_number(length_of(text), 2);
  while (*text) output[written++] = (u8)*text++;
}

// frame writes a frame with a text, preceded by its length, and padding.
static void frame(u8 kind, const char *text, u32 padding) {
  output[written++] = kind;
  put_number((text ? 2 + length_of(text) : 0) + padding, 4);
  if (text) put_text(text);
  while (padding-- > 0) output[written++] = '.';
}

static u64 answer(void) { return span((u32)output, written); }

static i32 is(const u8 *name, u32 length, const char *text) {
  if (length != length_of(text)) return 0;
  for (u32 i = 0; i < length; i++)
    if (name[i] != (u8)text[i]) return 0;
  return 1;
}

// find returns the bytes of the last frame of a kind in the input.
static const u8 *find(u8 kind, u32 end, u32 *length) {
  const u8 *found = 0;
  *length = 0;
  for (u32 at = 0; end - at >= 5;) {
    u32 n = (u32)number(input + at + 1, 4);
    if (input[at] == kind) found = input + at + 5, *length = n;
    at += 5 + n;
  }
  return found;
}

static volatile u32 sink;

__attribute__((noinline)) static u32 recurse(u32 n) {
  volatile u8 frame[64];
  frame[n % 64] = (u8)n;
  return recurse(n + 1) + frame[(n + 1) % 64];
}

EXPORT(hostd_abi) i32 abi(void) { return 1; }

EXPORT(hostd_describe) u64 describe(void) {
  static const char manifest[] =
      "{\"abi\":1,\"name\":\"faulty-c\",\"version\":\"1.0.0\",\"entityTypes\":[{\"name\":\"faulty\",\"kind\":\"event-sourced\",\"encoding\":\"bytes\"}]}";
  return span((u32)manifest, sizeof manifest - 1);
}

EXPORT(hostd_buffer) u32 buffer(u32 size) { return size <= sizeof input ? (u32)input : 0; }

EXPORT(hostd_drop) void drop(u64 entity) {
  if (is_loaded[entity]) loaded--;
  is_loaded[entity] = 0;
}

EXPORT(hostd_load) i32 load(u32 type, u64 entity, u32 length) {
  u32 n;
  const u8 *state = find(2, length, &n);
  drop(entity);
  counts[entity] = state ? number(state, 8) : 0;
  is_loaded[entity] = 1;
  loaded++;
  return 0;
}

EXPORT(hostd_apply) i32 apply(u64 entity, u32 length) {
  for (u32 at = 0; length - at >= 5;) {
    u32 n = (u32)number(input + at + 1, 4);
    const u8 *type = input + at + 5 + 18;
    u32 type_length = (u32)number(type - 2, 2);
    if (input[at] == 32) {
      if (is(type, type_length, "unappliable")) return 1;
      if (is(type, type_length, "trapping")) __builtin_trap();
      if (is(type, type_length, "endless"))
        for (;;) sink++;
      if (is(type, type_length, "timed")) sink = (u32)host_now();
      counts[entity]++;
    }
    at += 5 + n;
  }
  return 0;
}

EXPORT(hostd_snapshot) u64 snapshot(u64 entity) { return span((u32)&counts[entity], 8); }

// Commands whose answer is the fault.
static u64 bad_answer(const u8 *name, u32 length) {
  if (is(name, length, "span-outside")) return span(__builtin_wasm_memory_size(0) << 16, 1);
  if (is(name, length, "span-overflow")) return span(0xffffffff, 2);
  if (is(name, length, "no-frames")) put_number(0x0102030405060708, 7);
  if (is(name, length, "frame-too-long")) put_number(2, 1), put_number(1000, 4);
  if (is(name, length, "unknown-kind")) frame(99, 0, 0);
  if (is(name, length, "misplaced-kind")) frame(9, 0, 8);
  if (is(name, length, "two-replies")) frame(2, 0, 1), frame(2, 0, 1);
  if (is(name, length, "tag-first")) frame(8, 0, 1), frame(1, "added", 0);
  if (is(name, length, "nameless-event")) frame(1, "", 0);
  if (is(name, length, "129-events"))
    for (i32 i = 0; i < 129; i++) frame(1, "added", 0);
  if (is(name, length, "large-event")) frame(1, "added", (64 << 10) + 1);
  if (is(name, length, "large-reply")) frame(2, 0, (256 << 10) + 1);
  if (is(name, length, "large-output")) return span((u32)output, (2 << 20) + 1);
  if (is(name, length, "long-rejection")) frame(3, "code", (4 << 10) + 1);
  if (is(name, length, "bad-expression")) frame(12, "tick", 0);
  return answer();
}

EXPORT(hostd_handle) u64 handle(u64 entity, u32 length) {
  u32 n;
  const u8 *name = find(16, length, &n);
  written = 0;
  handled++;
  if (is(name, n, "add")) {
    frame(1, "added", 0);
    counts[entity]++;
    return answer();
  }
  if (is(name, n, "arm")) { // a timer whose command traps, due now
    const u8 *now = find(19, length, &n);
    written = 5;
    put_text("bomb");
    put_number(number(now, 8), 8);
    put_text("trap");
    n = written;
    written = 0;
    put_number(5, 1);
    put_number(n - 5, 4);
    written = n;
    return answer();
  }
  // No faults.
  if (is(name, n, "reject-after-event")) {
    frame(1, "added", 0);
    counts[entity]++;
    frame(3, "changed_my_mind", 0);
    return answer();
  }
  if (is(name, n, "flood-log")) {
    for (u32 i = 0; i < 1000; i++) host_log(1, (const u8 *)"nobody wants to read this", 25);
    return 0;
  }
  if (is(name, n, "grow-all")) { // a memory.grow that fails is not a fault
    while (__builtin_wasm_memory_grow(0, 16) != (unsigned long)-1) sink++;
    return 0;
  }
  // Events that cannot be applied.
  if (is(name, n, "unappliable") || is(name, n, "trapping") || is(name, n, "endless") || is(name, n, "timed")) {
    static char type[16];
    for (u32 i = 0; i <= n; i++) type[i] = i < n ? (char)name[i] : 0;
    frame(1, type, 0);
    return answer();
  }
  // Calls that do not return.
  if (is(name, n, "trap")) __builtin_trap();
  if (is(name, n, "divide")) return 7 / (sink - sink);
  if (is(name, n, "read-outside")) return *(volatile u8 *)0xfffffff0;
  if (is(name, n, "log-outside")) host_log(1, (const u8 *)0xfffffff0, 32);
  if (is(name, n, "exit")) proc_exit(3);
  if (is(name, n, "loop"))
    for (;;) sink++;
  if (is(name, n, "recurse")) return recurse(0);
  return bad_answer(name, n);
}

// "count" returns the entity's number. "loaded" and "handled" return the number
// of entities in the instance and of commands that it has handled.
EXPORT(hostd_query) u64 query(u64 entity, u32 length) {
  u32 n;
  const u8 *name = find(16, length, &n);
  written = 0;
  if (is(name, n, "trap")) __builtin_trap();
  if (is(name, n, "event")) {
    frame(1, "added", 0);
    return answer();
  }
  put_number(2, 1);
  put_number(8, 4);
  put_number(is(name, n, "loaded") ? loaded : is(name, n, "handled") ? handled : counts[entity], 8);
  return answer();
}
