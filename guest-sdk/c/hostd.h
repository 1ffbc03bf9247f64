// SDK for hostd entities written in C: this header, and nothing else. It needs
// no C library. A guest is one file that includes it and ends with HOSTD_SERVE.
//
// An entity type is a struct for its state, and tables of its events, commands
// and queries:
//
//   typedef struct { int64_t total; } state;
//   typedef struct { int64_t amount; } amount;
//
//   static const hostd_field state_fields[] = {HOSTD_I64(state, total), HOSTD_END};
//   static const hostd_field amount_fields[] = {HOSTD_I64(amount, amount), HOSTD_END};
//
//   static void added(void *s, const void *e) {
//     ((state *)s)->total += ((const amount *)e)->amount;
//   }
//   static void add(hostd_call *c, void *s, const void *cmd) {
//     hostd_emit(c, "added", cmd); // the state has changed
//     hostd_reply(c, s);
//   }
//
//   static const hostd_event events[] = {{"added", added, amount_fields}, {0}};
//   static const hostd_command commands[] = {{"add", add, amount_fields, state_fields}, {0}};
//   static const hostd_type types[] = {{.name = "counter", .state_size = sizeof(state),
//     .fields = state_fields, .events = events, .commands = commands}, {0}};
//   HOSTD_SERVE("counter", "1.0.0", types)
//
// hostd_emit encodes the event, decodes it from the bytes that it wrote, and
// applies it to the state, so that a live entity and a replayed one take the
// same path. Event functions must depend only on the state and the event.
//
// Memory that belongs to a call, such as texts of a command, is in an arena
// that is freed at the next call. Allocate memory of a state with hostd_alloc
// or hostd_keep. Misuse of this SDK is a trap and therefore a fault: nothing is
// stored, and the reason is in the node's log.
#ifndef HOSTD_H
#define HOSTD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTD_UNUSED __attribute__((unused))

// Times are nanoseconds.
#define HOSTD_SECOND 1000000000LL
#define HOSTD_MINUTE (60 * HOSTD_SECOND)
#define HOSTD_HOUR (60 * HOSTD_MINUTE)

// A hostd_text is a range of UTF-8 bytes. It does not end with a 0.
typedef struct {
  const char *at;
  uint32_t length;
} hostd_text;

#define HOSTD_TEXT_OF(literal) ((hostd_text){(literal), sizeof(literal) - 1})

// A hostd_field maps a member of a struct to a member of a JSON object.
typedef enum { HOSTD_END_KIND, HOSTD_I64_KIND, HOSTD_U64_KIND, HOSTD_BOOL_KIND, HOSTD_TEXT_KIND, HOSTD_RAW_KIND } hostd_kind;

typedef struct {
  const char *name;
  hostd_kind kind;
  uint32_t offset;
} hostd_field;

#define HOSTD_FIELD(type, member, json, kind) {json, kind, offsetof(type, member)}
#define HOSTD_I64(type, member) HOSTD_FIELD(type, member, #member, HOSTD_I64_KIND)   // an int64_t
#define HOSTD_U64(type, member) HOSTD_FIELD(type, member, #member, HOSTD_U64_KIND)   // a uint64_t
#define HOSTD_BOOL(type, member) HOSTD_FIELD(type, member, #member, HOSTD_BOOL_KIND) // a bool
#define HOSTD_TEXT(type, member) HOSTD_FIELD(type, member, #member, HOSTD_TEXT_KIND) // a hostd_text
#define HOSTD_RAW(type, member) HOSTD_FIELD(type, member, #member, HOSTD_RAW_KIND)   // a hostd_text of JSON, kept as it is
#define HOSTD_END {0}

// The fields of a struct that has none: the payload {}.
static const hostd_field hostd_no_fields[] HOSTD_UNUSED = {HOSTD_END};

// A hostd_json is the text of a checked JSON value. If there is no value, at is
// NULL.
typedef struct {
  const char *at;
  const char *end;
} hostd_json;

typedef struct hostd_call hostd_call;

// A hostd_event changes a state, or it is an older form of an event, which is
// no longer emitted. upcast then converts it to the form upcast_to, which may
// be an older form too. made initially consists of zeros. upcast must be
// deterministic. Memory that event and old point to is valid during the call,
// and so is memory that made points to.
typedef struct {
  const char *type; // of the stored event
  void (*evolve)(void *state, const void *event); // NULL for an older form
  const hostd_field *fields;
  const char *upcast_to;                        // set for an older form
  void (*upcast)(void *made, const void *old); // set for an older form
} hostd_event;

// A hostd_command decides: it emits, replies or rejects. Without fields it
// ignores its payload, and without reply fields it has no reply.
typedef struct {
  const char *name;
  void (*handle)(hostd_call *c, void *state, const void *command);
  const hostd_field *fields;
  const hostd_field *reply;
  bool internal; // only entities and timers may send it
  // rejects lists the codes with which the handler rejects, ending with NULL,
  // so that generated clients have them as a type; NULL does not declare any.
  const char *const *rejects;
} hostd_command;

typedef struct {
  const char *name;
  void (*answer)(hostd_call *c, const void *state, const void *query);
  const hostd_field *fields;
  const hostd_field *reply;
} hostd_query;

// A hostd_older_state is an earlier version of a durable type's state. migrate
// converts old to the current form, in a state that was initialized like a new
// one; it must be deterministic. Memory that old points to is valid during the
// call: use hostd_keep to keep texts in the state.
typedef struct {
  uint32_t version; // states stored before any version was declared have version 1
  const hostd_field *fields;
  void (*migrate)(void *state, const void *old);
} hostd_older_state;

// A hostd_type is an entity type; lists end with {0}.
typedef struct {
  const char *name;
  bool durable; // stores its latest state, which commands change in place
  uint32_t state_size;
  const hostd_field *fields; // of a state that is a flat struct; alternatively, set read, write and drop
  void (*init)(void *state); // initializes the state; zeros by default
  bool (*read)(void *state, hostd_json snapshot); // returns false if it cannot
  void (*write)(const void *state);
  void (*drop)(void *state); // frees the memory of the state
  const hostd_event *events;
  const hostd_command *commands;
  const hostd_query *queries;
  // options are additional members of the type in the manifest, as JSON without
  // the braces, such as "\"sends\":[\"orders\"],\"snapshotEvery\":100".
  const char *options;
  const char *state_schema; // JSON Schema; derived if fields are set
  uint32_t state_version; // version of the form of the state; 0: none
  const hostd_older_state *older_states; // earlier versions that can be read
} hostd_type;

// A hostd_call is the input of a handler.
struct hostd_call {
  hostd_text entity_id;
  const char *entity_type;
  uint64_t sequence; // of the entity's last event before the call
  int64_t now;
  hostd_text command_id;
  int32_t source; // HOSTD_CLIENT, HOSTD_TIMER or HOSTD_ENTITY
  hostd_text source_type, source_id; // of an entity
  int64_t due; // when the timer was due; 0 without one
  hostd_json payload; // NULL if there is none

  const hostd_type *type;
  void *state;
  const hostd_field *reply;
  hostd_text principal;
  hostd_text settings;
  bool has_principal;
  bool rejected;
  uint64_t random;
};

enum { HOSTD_CLIENT = 1, HOSTD_TIMER = 2, HOSTD_ENTITY = 3 };
enum { HOSTD_ONCE = 0, HOSTD_ALL = 1, HOSTD_SKIP = 2 };
enum { HOSTD_DEBUG = 0, HOSTD_INFO = 1, HOSTD_WARN = 2, HOSTD_ERROR = 3 };

// Memory functions with the names that the compiler calls.

__attribute__((weak)) void *memcpy(void *to, const void *from, size_t n) {
  for (size_t i = 0; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}

__attribute__((weak)) void *memset(void *to, int byte, size_t n) {
  for (size_t i = 0; i < n; i++) ((char *)to)[i] = (char)byte;
  return to;
}

__attribute__((weak)) int memcmp(const void *a, const void *b, size_t n) {
  const unsigned char *p = a, *q = b;
  for (size_t i = 0; i < n; i++)
    if (p[i] != q[i]) return p[i] < q[i] ? -1 : 1;
  return 0;
}

static hostd_text hostd_c(const char *text) {
  uint32_t n = 0;
  while (text[n]) n++;
  return (hostd_text){text, n};
}

// hostd_compare returns a negative number, 0 or a positive number if a is less
// than, equal to or greater than b in byte order.
HOSTD_UNUSED static int hostd_compare(hostd_text a, hostd_text b) {
  int order = memcmp(a.at, b.at, a.length < b.length ? a.length : b.length);
  return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static bool hostd_is(hostd_text a, const char *b) {
  hostd_text t = hostd_c(b);
  return a.length == t.length && memcmp(a.at, b, t.length) == 0;
}

__attribute__((import_module("hostd"), import_name("log"))) void hostd_import_log(int32_t level, const char *line, uint32_t length);

// hostd_log writes a line to the node's log. The host keeps 32 lines of 1 KiB
// per call.
HOSTD_UNUSED static void hostd_log(int32_t level, hostd_text line) { hostd_import_log(level, line.at, line.length); }

// hostd_panic ends the call with a fault: nothing of the call is stored.
__attribute__((noreturn)) static void hostd_panic(const char *reason) {
  hostd_log(HOSTD_ERROR, hostd_c(reason));
  __builtin_trap();
}

// Memory: blocks of 16 bytes to 4 MiB, in classes whose size doubles. The class
// is stored before the block. A freed block is reused for the same class.

#define HOSTD_CLASSES 19
extern char __heap_base;
static void *hostd_free_blocks[HOSTD_CLASSES];
static uint32_t hostd_heap;

static void *hostd_try_alloc(uint32_t size) {
  uint32_t class = 0;
  while (class < HOSTD_CLASSES && (16u << class) < size + 8) class++;
  if (class == HOSTD_CLASSES || size > 0xffffff) return NULL;
  char *block = hostd_free_blocks[class];
  if (block) {
    hostd_free_blocks[class] = *(void **)(block + 8);
  } else {
    if (!hostd_heap) hostd_heap = ((uint32_t)(uintptr_t)&__heap_base + 15) & ~15u;
    uint64_t end = (uint64_t)hostd_heap + (16u << class), have = (uint64_t)__builtin_wasm_memory_size(0) << 16;
    if (end > have && __builtin_wasm_memory_grow(0, (uint32_t)((end - have + 0xffff) >> 16)) == (size_t)-1) return NULL;
    block = (char *)(uintptr_t)hostd_heap;
    hostd_heap = (uint32_t)end;
    *(uint32_t *)block = class;
  }
  memset(block + 8, 0, size);
  return block + 8;
}

// hostd_alloc returns zeroed memory that stays until hostd_free. If no memory
// is left, it is a fault.
HOSTD_UNUSED static void *hostd_alloc(uint32_t size) {
  void *block = hostd_try_alloc(size);
  if (!block) hostd_panic("hostd: out of memory");
  return block;
}

HOSTD_UNUSED static void hostd_free(const void *memory) {
  if (!memory) return;
  char *block = (char *)(uintptr_t)memory - 8;
  uint32_t class = *(uint32_t *)block;
  *(void **)(block + 8) = hostd_free_blocks[class];
  hostd_free_blocks[class] = block;
}

// hostd_resize reallocates memory, which may be NULL, with a new size.
HOSTD_UNUSED static void *hostd_resize(void *memory, uint32_t old_size, uint32_t size) {
  void *made = hostd_alloc(size);
  if (memory) memcpy(made, memory, old_size < size ? old_size : size);
  hostd_free(memory);
  return made;
}

// hostd_keep stores a copy of a text in a state and frees the previous text.
HOSTD_UNUSED static void hostd_keep(hostd_text *to, hostd_text text) {
  char *copy = NULL;
  if (text.length) {
    copy = hostd_alloc(text.length);
    memcpy(copy, text.at, text.length);
  }
  hostd_free(to->at);
  *to = (hostd_text){copy, text.length};
}

// The arena of a call: its memory is freed at the next call.
typedef struct hostd_chunk {
  struct hostd_chunk *before;
  uint32_t used, size, unused; // aligns the memory after it to 8 bytes
} hostd_chunk;

static hostd_chunk *hostd_arena;

static void *hostd_temporary(uint32_t size) {
  size = (size + 7) & ~7u;
  if (!hostd_arena || hostd_arena->size - hostd_arena->used < size) {
    uint32_t want = size > 4000 ? size : 4000;
    hostd_chunk *chunk = hostd_alloc(want + sizeof(hostd_chunk));
    *chunk = (hostd_chunk){hostd_arena, 0, want, 0};
    hostd_arena = chunk;
  }
  char *memory = (char *)(hostd_arena + 1) + hostd_arena->used;
  hostd_arena->used += size;
  memset(memory, 0, size);
  return memory;
}

static void hostd_empty_arena(void) {
  while (hostd_arena && hostd_arena->before) {
    hostd_chunk *before = hostd_arena->before;
    hostd_free(hostd_arena);
    hostd_arena = before;
  }
  if (hostd_arena) hostd_arena->used = 0;
}

// Output: frames, each of which is opened, filled and closed.

static char *hostd_out;
static uint32_t hostd_written, hostd_room;

static char *hostd_grow(uint32_t n) {
  if (hostd_room - hostd_written < n) {
    uint32_t want = hostd_room ? hostd_room * 2 : 1016;
    while (want - hostd_written < n) want *= 2;
    hostd_out = hostd_resize(hostd_out, hostd_written, want);
    hostd_room = want;
  }
  char *at = hostd_out + hostd_written;
  hostd_written += n;
  return at;
}

static void hostd_put(hostd_text bytes) { memcpy(hostd_grow(bytes.length), bytes.at, bytes.length); }
static void hostd_put_c(const char *text) { hostd_put(hostd_c(text)); }
static void hostd_put_byte(char byte) { *hostd_grow(1) = byte; }

static void hostd_put_number(uint64_t value, uint32_t bytes) {
  char *at = hostd_grow(bytes);
  for (uint32_t i = 0; i < bytes; i++, value >>= 8) at[i] = (char)value;
}

// hostd_put_name writes a text preceded by its length.
static void hostd_put_name(hostd_text name) {
  // A longer text is truncated; it still exceeds the limit of names, so the
  // host rejects the command.
  if (name.length > 0xffff) name.length = 0xffff;
  hostd_put_number(name.length, 2);
  hostd_put(name);
}

static uint32_t hostd_open(uint8_t kind) {
  hostd_put_byte((char)kind);
  hostd_put_number(0, 4);
  return hostd_written;
}

static void hostd_close(uint32_t start) {
  uint32_t length = hostd_written - start;
  for (uint32_t i = 0; i < 4; i++, length >>= 8) hostd_out[start - 4 + i] = (char)length;
}

static uint64_t hostd_number(const char *bytes, uint32_t count) {
  uint64_t value = 0;
  while (count-- > 0) value = value << 8 | (uint8_t)bytes[count];
  return value;
}

// Functions that write JSON, in the order of the calls, with commas where they
// are needed.

static void hostd_comma(void) {
  char last = hostd_written ? hostd_out[hostd_written - 1] : 0;
  if (last == '"' || last == '}' || last == ']' || last == 'e' || last == 'l' || (last >= '0' && last <= '9')) hostd_put_byte(',');
}

HOSTD_UNUSED static void hostd_json_text(hostd_text text) {
  static const char hex[] = "0123456789abcdef";
  hostd_put_byte('"');
  for (uint32_t i = 0; i < text.length; i++) {
    uint8_t c = (uint8_t)text.at[i];
    const char *short_form = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : c == '\b' ? "\\b" : c == '\f' ? "\\f" : NULL;
    if (short_form) {
      hostd_put((hostd_text){short_form, 2});
    } else if (c < 0x20) {
      hostd_put_c("\\u00");
      hostd_put_byte(hex[c >> 4]);
      hostd_put_byte(hex[c & 15]);
    } else {
      if (c == '"' || c == '\\') hostd_put_byte('\\');
      hostd_put_byte((char)c);
    }
  }
  hostd_put_byte('"');
}

static void hostd_put_digits(uint64_t value, bool negative) {
  char digits[20];
  uint32_t n = 0;
  if (negative) hostd_put_byte('-');
  do digits[n++] = (char)('0' + value % 10);
  while ((value /= 10) > 0);
  while (n > 0) hostd_put_byte(digits[--n]);
}

HOSTD_UNUSED static void hostd_json_int(int64_t value) { hostd_put_digits(value < 0 ? -(uint64_t)value : (uint64_t)value, value < 0); }
HOSTD_UNUSED static void hostd_json_bool(bool value) { hostd_put_c(value ? "true" : "false"); }

// hostd_json_member writes the name of a member; its value must follow.
HOSTD_UNUSED static void hostd_json_member(hostd_text name) {
  hostd_comma();
  hostd_json_text(name);
  hostd_put_byte(':');
}

HOSTD_UNUSED static void hostd_json_open(char bracket) { hostd_put_byte(bracket); }
HOSTD_UNUSED static void hostd_json_close(char bracket) { hostd_put_byte(bracket); }

// hostd_json_next must be called before each element of a list.
HOSTD_UNUSED static void hostd_json_next(void) { hostd_comma(); }

// hostd_json_struct writes a struct as an object, with its members in the order
// of the fields.
static void hostd_json_struct(const hostd_field *fields, const void *value) {
  hostd_put_byte('{');
  for (const hostd_field *f = fields; f->name; f++) {
    if (f != fields) hostd_put_byte(',');
    hostd_json_text(hostd_c(f->name));
    hostd_put_byte(':');
    const char *at = (const char *)value + f->offset;
    hostd_text text = {0};
    if (f->kind >= HOSTD_TEXT_KIND) text = *(const hostd_text *)at;
    switch (f->kind) {
    case HOSTD_I64_KIND: hostd_json_int(*(const int64_t *)at); break;
    case HOSTD_U64_KIND: hostd_put_digits(*(const uint64_t *)at, false); break;
    case HOSTD_BOOL_KIND: hostd_json_bool(*(const bool *)at); break;
    case HOSTD_RAW_KIND: hostd_put(text.length ? text : HOSTD_TEXT_OF("null")); break;
    default: hostd_json_text(text);
    }
  }
  hostd_put_byte('}');
}

// Functions that read JSON, from text that was checked as a whole before.

static const char *hostd_space(const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
  return at;
}

static const char *hostd_word(const char *at, const char *end, const char *word) {
  for (; *word; at++, word++)
    if (at >= end || *at != *word) return NULL;
  return at;
}

static int32_t hostd_hex(const char *at, const char *end) {
  int32_t code = 0;
  if (end - at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    char c = at[i];
    int32_t digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    code = code << 4 | digit;
  }
  return code;
}

// The following functions return the position after what they find, or NULL.

static const char *hostd_skip_text(const char *at, const char *end) {
  if (at >= end || *at++ != '"') return NULL;
  while (at < end) {
    char c = *at++;
    if (c == '"') return at;
    if ((uint8_t)c < 0x20) return NULL;
    if (c != '\\') continue;
    if (at >= end) return NULL;
    c = *at++;
    if (c == 'u') {
      if (hostd_hex(at, end) < 0) return NULL;
      at += 4;
    } else if (c != '"' && c != '\\' && c != '/' && c != 'b' && c != 'f' && c != 'n' && c != 'r' && c != 't') {
      return NULL;
    }
  }
  return NULL;
}

static const char *hostd_skip_digits(const char *at, const char *end) {
  const char *start = at;
  while (at < end && *at >= '0' && *at <= '9') at++;
  return at == start ? NULL : at;
}

static const char *hostd_skip_number(const char *at, const char *end, bool *whole) {
  *whole = true;
  if (at < end && *at == '-') at++;
  const char *first = at;
  if (!(at = hostd_skip_digits(at, end)) || (*first == '0' && at - first > 1)) return NULL;
  if (at < end && *at == '.') {
    *whole = false;
    if (!(at = hostd_skip_digits(at + 1, end))) return NULL;
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    *whole = false;
    if (++at < end && (*at == '+' || *at == '-')) at++;
    at = hostd_skip_digits(at, end);
  }
  return at;
}

#define HOSTD_DEPTH 200

static const char *hostd_skip(const char *at, const char *end, int depth) {
  bool whole;
  at = hostd_space(at, end);
  if (at >= end || depth > HOSTD_DEPTH) return NULL;
  switch (*at) {
  case '"': return hostd_skip_text(at, end);
  case 't': return hostd_word(at, end, "true");
  case 'f': return hostd_word(at, end, "false");
  case 'n': return hostd_word(at, end, "null");
  case '{':
  case '[': break;
  default: return hostd_skip_number(at, end, &whole);
  }
  bool object = *at == '{';
  char closing = object ? '}' : ']';
  at = hostd_space(at + 1, end);
  if (at < end && *at == closing) return at + 1;
  for (;;) {
    if (object) {
      at = hostd_skip_text(hostd_space(at, end), end);
      if (!at) return NULL;
      at = hostd_space(at, end);
      if (at >= end || *at++ != ':') return NULL;
    }
    if (!(at = hostd_skip(at, end, depth + 1))) return NULL;
    at = hostd_space(at, end);
    if (at >= end) return NULL;
    if (*at == closing) return at + 1;
    if (*at++ != ',') return NULL;
  }
}

// hostd_parse finds the single value of a text; false if there is none, or more
// than one.
static bool hostd_parse(hostd_text text, hostd_json *value) {
  const char *end = text.at + text.length, *start = hostd_space(text.at, end), *behind = hostd_skip(start, end, 0);
  if (!behind || hostd_space(behind, end) != end) return false;
  *value = (hostd_json){start, behind};
  return true;
}

// hostd_null reports whether the value is missing or null.
static bool hostd_null(hostd_json v) { return !v.at || *v.at == 'n'; }

// hostd_get_text reads a string, and copies it to the arena if it has escapes.
// A missing value is the empty text.
static bool hostd_get_text(hostd_json v, hostd_text *text) {
  *text = (hostd_text){"", 0};
  if (hostd_null(v)) return true;
  if (*v.at != '"') return false;
  const char *at = v.at + 1, *end = v.end - 1, *plain = at;
  while (plain < end && *plain != '\\') plain++;
  if (plain == end) {
    *text = (hostd_text){at, (uint32_t)(end - at)};
    return true;
  }
  char *to = hostd_temporary((uint32_t)(end - at)), *start = to;
  while (at < end) {
    char c = *at++;
    if (c != '\\') {
      *to++ = c;
      continue;
    }
    c = *at++;
    if (c != 'u') {
      *to++ = c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c == 'b' ? '\b' : c == 'f' ? '\f' : c;
      continue;
    }
    uint32_t code = (uint32_t)hostd_hex(at, end);
    at += 4;
    if (code >= 0xd800 && code < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
      uint32_t low = (uint32_t)hostd_hex(at + 2, end);
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
      }
    }
    if (code >= 0xd800 && code < 0xe000) code = 0xfffd;
    if (code < 0x80) {
      *to++ = (char)code;
    } else if (code < 0x800) {
      *to++ = (char)(0xc0 | code >> 6);
      *to++ = (char)(0x80 | (code & 63));
    } else {
      if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
      } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
      }
      *to++ = (char)(0x80 | (code >> 6 & 63));
      *to++ = (char)(0x80 | (code & 63));
    }
  }
  *text = (hostd_text){start, (uint32_t)(to - start)};
  return true;
}

// hostd_magnitude reads an integer, which may be in quotes. A missing value is
// 0.
static bool hostd_magnitude(hostd_json v, uint64_t *magnitude, bool *negative) {
  bool whole;
  *magnitude = 0;
  *negative = false;
  if (hostd_null(v)) return true;
  const char *at = v.at, *end = v.end;
  if (*at == '"') at++, end--;
  if (hostd_skip_number(at, end, &whole) != end || !whole) return false;
  if (*at == '-') *negative = true, at++;
  for (; at < end; at++) {
    uint64_t digit = (uint64_t)(*at - '0');
    if (*magnitude > (UINT64_MAX - digit) / 10) return false;
    *magnitude = *magnitude * 10 + digit;
  }
  return true;
}

HOSTD_UNUSED static bool hostd_get_int(hostd_json v, int64_t *value) {
  uint64_t magnitude;
  bool negative;
  if (!hostd_magnitude(v, &magnitude, &negative) || magnitude > (1ULL << 63) - !negative) return false;
  *value = (int64_t)(negative ? 0 - magnitude : magnitude);
  return true;
}

HOSTD_UNUSED static bool hostd_get_unsigned(hostd_json v, uint64_t *value) {
  bool negative;
  return hostd_magnitude(v, value, &negative) && (!negative || *value == 0);
}

HOSTD_UNUSED static bool hostd_get_bool(hostd_json v, bool *value) {
  *value = v.at && *v.at == 't';
  return hostd_null(v) || *v.at == 't' || *v.at == 'f';
}

// A hostd_iterator iterates over an object or a list; start with {value}.
typedef struct {
  hostd_json in;
  const char *at;
} hostd_iterator;

// hostd_next reads the next member or element; it returns false at the end, and
// for a value that is neither object nor list. The name of an element is empty.
static bool hostd_next(hostd_iterator *i, hostd_text *name, hostd_json *value) {
  *name = (hostd_text){"", 0};
  if (!i->in.at || (*i->in.at != '{' && *i->in.at != '[')) return false;
  const char *end = i->in.end, *at = hostd_space((i->at ? i->at : i->in.at) + 1, end);
  if (at >= end || *at == '}' || *at == ']') return false;
  if (*i->in.at == '{') {
    const char *behind = hostd_skip_text(at, end);
    hostd_get_text((hostd_json){at, behind}, name);
    at = hostd_space(hostd_space(behind, end) + 1, end);
  }
  const char *behind = hostd_skip(at, end, 0);
  *value = (hostd_json){at, behind};
  i->at = hostd_space(behind, end); // the comma, or the end
  if (*i->at != ',') i->at = end - 2;
  return true;
}

// hostd_get_struct reads an object into a zeroed struct. Missing and null
// members stay 0, unknown ones are ignored.
static bool hostd_get_struct(hostd_json v, const hostd_field *fields, void *value) {
  for (const hostd_field *f = fields; f->name; f++)
    if (f->kind >= HOSTD_TEXT_KIND) *(hostd_text *)((char *)value + f->offset) = (hostd_text){"", 0};
  if (hostd_null(v)) return true;
  if (*v.at != '{') return false;
  hostd_iterator i = {v, NULL};
  hostd_text name;
  hostd_json member;
  while (hostd_next(&i, &name, &member)) {
    for (const hostd_field *f = fields; f->name; f++) {
      if (!hostd_is(name, f->name)) continue;
      void *at = (char *)value + f->offset;
      bool fits = true;
      switch (f->kind) {
      case HOSTD_I64_KIND: fits = hostd_get_int(member, at); break;
      case HOSTD_U64_KIND: fits = hostd_get_unsigned(member, at); break;
      case HOSTD_BOOL_KIND: fits = hostd_get_bool(member, at); break;
      case HOSTD_RAW_KIND: *(hostd_text *)at = (hostd_text){member.at, (uint32_t)(member.end - member.at)}; break;
      default: fits = hostd_get_text(member, at);
      }
      if (!fits) return false;
    }
  }
  return true;
}

// Functions for handlers.

// hostd_reject rejects the command or query: nothing is stored. Reject before
// emitting events, because the host has to reload an entity whose state has
// changed already.
HOSTD_UNUSED static void hostd_reject_text(hostd_call *c, hostd_text code, hostd_text message) {
  if (c->rejected) return;
  c->rejected = true;
  uint32_t start = hostd_open(3);
  hostd_put_name(code);
  hostd_put(message);
  hostd_close(start);
}

HOSTD_UNUSED static void hostd_reject(hostd_call *c, const char *code, const char *message) {
  hostd_reject_text(c, hostd_c(code), hostd_c(message));
}

// hostd_reply replies with a struct of the reply fields.
HOSTD_UNUSED static void hostd_reply(hostd_call *c, const void *value) {
  if (!c->reply) hostd_panic("hostd: a reply to a command or query without reply fields");
  uint32_t start = hostd_open(2);
  hostd_json_struct(c->reply, value);
  hostd_close(start);
}

// The maximum size of a struct that is read by its fields.
#define HOSTD_STRUCT 4096

static uint32_t hostd_struct_size(const hostd_field *fields) {
  uint32_t size = 0;
  for (const hostd_field *f = fields; f->name; f++)
    if (f->offset + sizeof(hostd_text) > size) size = f->offset + sizeof(hostd_text);
  if (size > HOSTD_STRUCT) hostd_panic("hostd: a struct has more than 4096 bytes");
  return size;
}

static const hostd_event *hostd_find_event(const hostd_type *t, hostd_text type) {
  for (const hostd_event *e = t->events; e && e->type; e++)
    if (hostd_is(type, e->type)) return e;
  return NULL;
}

static const hostd_field *hostd_event_fields(const hostd_event *e) { return e->fields ? e->fields : hostd_no_fields; }

// hostd_read_event reads the payload of an event into the arena; NULL if it
// cannot be read.
static void *hostd_read_event(const hostd_event *e, hostd_text payload) {
  hostd_json value = {0};
  if (payload.length && !hostd_parse(payload, &value)) return NULL;
  void *event = hostd_temporary(hostd_struct_size(hostd_event_fields(e)) + 1);
  return hostd_get_struct(value, hostd_event_fields(e), event) ? event : NULL;
}

// hostd_cut_off moves the output after a position to the arena.
static hostd_text hostd_cut_off(uint32_t from) {
  uint32_t length = hostd_written - from;
  char *copy = hostd_temporary(length);
  memcpy(copy, hostd_out + from, length);
  hostd_written = from;
  return (hostd_text){copy, length};
}

// hostd_upcast_event upcasts an event and its payload to the current form; NULL
// if it cannot be read. Each form is written and read like a stored event, so
// that the state and readers get the same.
static const hostd_event *hostd_upcast_event(const hostd_type *t, const hostd_event *e, hostd_text *payload) {
  while (e->upcast_to) {
    const hostd_event *to = hostd_find_event(t, hostd_c(e->upcast_to));
    void *old = hostd_read_event(e, *payload);
    if (!old) return NULL;
    void *made = hostd_temporary(hostd_struct_size(hostd_event_fields(to)) + 1);
    e->upcast(made, old);
    uint32_t start = hostd_written;
    hostd_json_struct(hostd_event_fields(to), made);
    *payload = hostd_cut_off(start);
    e = to;
  }
  return e;
}

// hostd_evolve applies the payload of a stored event to a state.
static bool hostd_evolve(const hostd_type *t, const hostd_event *e, void *state, hostd_text payload) {
  e = hostd_upcast_event(t, e, &payload);
  void *event = e ? hostd_read_event(e, payload) : NULL;
  if (!event) return false;
  e->evolve(state, event);
  return true;
}

// hostd_emit appends an event, a struct of the fields of its type, and applies
// it to the state.
HOSTD_UNUSED static void hostd_emit(hostd_call *c, const char *type, const void *event) {
  const hostd_event *e = hostd_find_event(c->type, hostd_c(type));
  if (!e || e->upcast_to) hostd_panic("hostd: the emitted event is not declared");
  uint32_t start = hostd_open(1);
  hostd_put_name(hostd_c(type));
  uint32_t payload = hostd_written;
  hostd_json_struct(hostd_event_fields(e), event);
  hostd_close(start);
  // A copy: the event function may write output, and the output may move.
  hostd_text bytes = {hostd_out + payload, hostd_written - payload};
  char *copy = hostd_temporary(bytes.length);
  memcpy(copy, bytes.at, bytes.length);
  if (!hostd_evolve(c->type, e, c->state, (hostd_text){copy, bytes.length})) hostd_panic("hostd: the emitted event cannot be decoded");
}

// hostd_tag adds a tag to the event that was emitted last. Events with a tag
// can be read across entities.
HOSTD_UNUSED static void hostd_tag(hostd_call *c, const char *tag) {
  (void)c;
  uint32_t start = hostd_open(8);
  hostd_put_c(tag);
  hostd_close(start);
}

static void hostd_put_payload(const hostd_field *fields, const void *value) {
  if (fields) hostd_json_struct(fields, value);
}

// hostd_send sends a command to another entity, exactly once, after this
// command has been stored. Without fields it has no payload.
HOSTD_UNUSED static void hostd_send(hostd_call *c, const char *type, hostd_text id, const char *command, const hostd_field *fields, const void *payload) {
  (void)c;
  uint32_t start = hostd_open(4);
  hostd_put_name(hostd_c(type));
  hostd_put_name(id);
  hostd_put_name(hostd_c(command));
  hostd_put_payload(fields, payload);
  hostd_close(start);
}

// hostd_send_with_answer is hostd_send, with the outcome sent back as a command
// of this entity: on_reply with the reply as its payload, or on_reject with
// {"code":...,"message":...}.
HOSTD_UNUSED static void hostd_send_with_answer(hostd_call *c, const char *type, hostd_text id, const char *command, const char *on_reply,
                                                const char *on_reject, const hostd_field *fields, const void *payload) {
  (void)c;
  uint32_t start = hostd_open(11);
  hostd_put_name(hostd_c(type));
  hostd_put_name(id);
  hostd_put_name(hostd_c(command));
  hostd_put_name(hostd_c(on_reply));
  hostd_put_name(hostd_c(on_reject));
  hostd_put_payload(fields, payload);
  hostd_close(start);
}

// hostd_set_timer makes the host send this entity a command at a time. It
// replaces a timer of the same name. A timer that is due at INT64_MAX, on
// 2262-04-11, never fires. If the time is before 1970, which can also result
// from an overflow, the host rejects the command with invalid_argument.
HOSTD_UNUSED static void hostd_set_timer(hostd_call *c, const char *name, int64_t due, const char *command, const hostd_field *fields, const void *payload) {
  (void)c;
  uint32_t start = hostd_open(5);
  hostd_put_name(hostd_c(name));
  hostd_put_number((uint64_t)due, 8);
  hostd_put_name(hostd_c(command));
  hostd_put_payload(fields, payload);
  hostd_close(start);
}

// hostd_cancel_timer removes a timer or a schedule, if there is one.
HOSTD_UNUSED static void hostd_cancel_timer(hostd_call *c, const char *name) {
  (void)c;
  uint32_t start = hostd_open(6);
  hostd_put_c(name);
  hostd_close(start);
}

// hostd_schedule makes the host send this entity a command periodically. The
// expression is "@every 90s" or five fields of the wall clock of a zone, where
// "" means UTC; missed is HOSTD_ONCE, HOSTD_ALL or HOSTD_SKIP. Each call
// restarts the period, so call it only once.
HOSTD_UNUSED static void hostd_schedule(hostd_call *c, const char *name, const char *expression, const char *zone, int missed, const char *command,
                                        const hostd_field *fields, const void *payload) {
  (void)c;
  uint32_t start = hostd_open(12);
  hostd_put_name(hostd_c(name));
  hostd_put_name(hostd_c(expression));
  hostd_put_name(hostd_c(zone));
  hostd_put_byte((char)missed);
  hostd_put_name(hostd_c(command));
  hostd_put_payload(fields, payload);
  hostd_close(start);
}

// hostd_passivate asks the host to remove the entity from memory after this
// command.
HOSTD_UNUSED static void hostd_passivate(hostd_call *c) { (void)c, hostd_close(hostd_open(7)); }

// hostd_delete ends the entity's life after this command's events. If its id is
// used again, it starts from the initial state.
HOSTD_UNUSED static void hostd_delete(hostd_call *c) { (void)c, hostd_close(hostd_open(10)); }

// hostd_random returns the next number of the command's own random sequence:
// the same command on the same state draws the same numbers. Not suitable for
// secrets.
HOSTD_UNUSED static uint64_t hostd_random(hostd_call *c) { // splitmix64
  uint64_t z = c->random += 0x9e3779b97f4a7c15ULL;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
  return z ^ z >> 31;
}

static hostd_text hostd_cut(hostd_text *rest) {
  if (rest->length < 2) hostd_panic("hostd: a text is cut off");
  uint32_t length = (uint32_t)hostd_number(rest->at, 2);
  if (length > rest->length - 2) hostd_panic("hostd: a text is cut off");
  hostd_text text = {rest->at + 2, length};
  *rest = (hostd_text){text.at + length, rest->length - 2 - length};
  return text;
}

// A hostd_principal is a caller: kind is "token", "jwt" or "certificate", or
// "anonymous" for a caller without a credential; name is unique within its
// kind.
typedef struct {
  hostd_text kind, name, groups;
} hostd_principal;

// hostd_get_principal returns the caller. It returns false if the cluster does
// not authenticate callers, and for commands that entities and timers send. A
// handler that authorizes by owner should then reject.
HOSTD_UNUSED static bool hostd_get_principal(const hostd_call *c, hostd_principal *p) {
  if (!c->has_principal) return false;
  p->groups = c->principal;
  p->kind = hostd_cut(&p->groups);
  p->name = hostd_cut(&p->groups);
  return true;
}

// hostd_next_group removes the next group from p; false if there is none left.
HOSTD_UNUSED static bool hostd_next_group(hostd_principal *p, hostd_text *group) {
  if (!p->groups.length) return false;
  *group = hostd_cut(&p->groups);
  return true;
}

// hostd_setting reads the value that operators have set for the entity's type
// under a name; it returns false if it is not set. The text is valid during the
// call. Event functions cannot read settings: put whatever an event needs into
// the event.
HOSTD_UNUSED static bool hostd_setting(const hostd_call *c, const char *name, hostd_text *value) {
  hostd_text rest = c->settings;
  while (rest.length) {
    hostd_text found = hostd_cut(&rest);
    *value = hostd_cut(&rest);
    if (hostd_is(found, name)) return true;
  }
  *value = (hostd_text){"", 0};
  return false;
}

// The manifest.

static void hostd_put_schema(const char *name, const hostd_field *fields, bool given, bool closed) {
  static const char *const types[] = {"", "[\"integer\",\"string\"],\"format\":\"int64\"", "[\"integer\",\"string\"],\"format\":\"uint64\"",
                                      "\"boolean\"", "\"string\"", ""};
  if (!fields) return;
  hostd_json_member(hostd_c(name));
  hostd_put_c(given ? "{\"type\":[\"object\",\"null\"],\"properties\":{" : "{\"type\":\"object\",\"properties\":{");
  for (const hostd_field *f = fields; f->name; f++) {
    hostd_json_member(hostd_c(f->name));
    hostd_put_c(f->kind == HOSTD_RAW_KIND ? "{" : "{\"type\":");
    hostd_put_c(types[f->kind]);
    hostd_put_byte('}');
  }
  hostd_put_byte('}');
  if (closed) hostd_put_c(",\"additionalProperties\":false");
  if (!given && fields->name) {
    hostd_put_c(",\"required\":[");
    for (const hostd_field *f = fields; f->name; f++) {
      hostd_comma();
      hostd_json_text(hostd_c(f->name));
    }
    hostd_put_byte(']');
  }
  hostd_put_byte('}');
}

static void hostd_named(const char *name, const char *value) {
  hostd_json_member(hostd_c(name));
  hostd_json_text(hostd_c(value));
}

static void hostd_list(const char *name) {
  hostd_json_member(hostd_c(name));
  hostd_put_byte('[');
}

static void hostd_element(void) {
  hostd_comma();
  hostd_put_byte('{');
}

// hostd_put_states writes which version the state of a type has, and which
// versions it reads.
static void hostd_put_states(const hostd_type *t) {
  if (t->state_version) {
    hostd_json_member(HOSTD_TEXT_OF("stateVersion"));
    hostd_put_digits(t->state_version, false);
  }
  if (!t->older_states) return;
  if (!t->durable) hostd_panic("hostd: only a durable-state type has older states");
  hostd_list("readsStates");
  for (const hostd_older_state *o = t->older_states; o->version; o++) {
    if (o->version >= t->state_version || !o->fields || !o->migrate) hostd_panic("hostd: an older state needs a version below state_version, fields and migrate");
    hostd_element();
    hostd_json_member(HOSTD_TEXT_OF("version"));
    hostd_put_digits(o->version, false);
    hostd_put_schema("schema", o->fields, false, false);
    hostd_put_byte('}');
  }
  hostd_put_byte(']');
}

// hostd_last_form returns the current form of an event.
static const hostd_event *hostd_last_form(const hostd_type *t, const hostd_event *e) {
  uint32_t left = 1000; // maximum number of forms of an event
  while (e && e->upcast_to && left--) {
    if (!e->upcast || e->evolve) hostd_panic("hostd: an older version of an event needs upcast and must not have evolve");
    e = hostd_find_event(t, hostd_c(e->upcast_to));
  }
  if (!e || e->upcast_to) hostd_panic("hostd: an event must be upcast to a declared event in its current form");
  if (!e->evolve || e->upcast) hostd_panic("hostd: an event in its current form needs evolve and must not have upcast");
  return e;
}

static void hostd_put_type(const hostd_type *t) {
  hostd_element();
  hostd_named("name", t->name);
  hostd_named("kind", t->durable ? "durable-state" : "event-sourced");
  hostd_named("encoding", "json");
  hostd_list("commands");
  for (const hostd_command *c = t->commands; c && c->name; c++) {
    hostd_element();
    hostd_named("name", c->name);
    if (c->internal) hostd_put_c(",\"internal\":true");
    if (c->rejects) {
      hostd_list("rejections");
      for (const char *const *code = c->rejects; *code; code++) {
        hostd_comma();
        hostd_json_text(hostd_c(*code));
      }
      hostd_put_byte(']');
    }
    // The sender of an internal command is another module, which may be newer.
    hostd_put_schema("schema", c->fields, true, !c->internal);
    hostd_put_schema("reply", c->reply, false, false);
    hostd_put_byte('}');
  }
  hostd_put_byte(']');
  hostd_list("queries");
  for (const hostd_query *q = t->queries; q && q->name; q++) {
    hostd_element();
    hostd_named("name", q->name);
    hostd_put_schema("schema", q->fields, true, true);
    hostd_put_schema("reply", q->reply, false, false);
    hostd_put_byte('}');
  }
  hostd_put_byte(']');
  hostd_list("events");
  for (const hostd_event *e = t->events; e && e->type; e++) {
    hostd_element();
    hostd_named("type", e->type);
    const hostd_event *last = hostd_last_form(t, e);
    if (last != e) hostd_named("upcastTo", last->type);
    hostd_put_schema("schema", hostd_event_fields(e), false, false);
    hostd_put_byte('}');
  }
  hostd_put_byte(']');
  if (t->state_schema) {
    hostd_json_member(HOSTD_TEXT_OF("state"));
    hostd_put_c(t->state_schema);
  } else {
    hostd_put_schema("state", t->fields, false, false);
  }
  hostd_put_states(t);
  if (t->options) {
    hostd_comma();
    hostd_put_c(t->options);
  }
  hostd_put_byte('}');
}

// Entities, by handle.

typedef struct {
  const hostd_type *type; // NULL for a free handle
  hostd_text id;
  void *state;
} hostd_entity;

typedef struct {
  const char *name, *version;
  const hostd_type *types;
} hostd_module;

static hostd_entity *hostd_entities;
static uint32_t hostd_entity_count;
static char *hostd_input;
static uint32_t hostd_input_size;

static uint64_t hostd_span(void) { return hostd_written ? (uint64_t)(uintptr_t)hostd_out << 32 | hostd_written : 0; }

static hostd_entity *hostd_at(uint64_t handle) {
  if (handle >= hostd_entity_count || !hostd_entities[handle].type) hostd_panic("hostd: no entity has this handle");
  return &hostd_entities[handle];
}

static void hostd_drop_state(const hostd_type *t, void *state) {
  if (t->drop) t->drop(state);
  for (const hostd_field *f = t->fields; f && f->name; f++)
    if (f->kind >= HOSTD_TEXT_KIND) hostd_free(((hostd_text *)((char *)state + f->offset))->at);
  hostd_free(state);
}

// hostd_migrate converts a state of an older version to a zeroed state; false
// if it cannot be read.
static bool hostd_migrate(const hostd_type *t, void *state, hostd_json snapshot, uint64_t version) {
  const hostd_older_state *o = t->older_states;
  while (o && o->version && o->version != version) o++;
  if (!o || !o->version) return false;
  void *old = hostd_temporary(hostd_struct_size(o->fields) + 1);
  if (!hostd_get_struct(snapshot, o->fields, old)) return false;
  if (t->init) t->init(state);
  o->migrate(state, old);
  return true;
}

// hostd_make_state returns a new state, from a snapshot if there is one. A
// version of 0 is the type's own. It returns NULL if the snapshot cannot be
// read or no memory is left.
static void *hostd_make_state(const hostd_type *t, hostd_text snapshot, bool has_snapshot, uint64_t version, bool *unreadable) {
  void *state = hostd_try_alloc(t->state_size + sizeof(hostd_text));
  hostd_json value;
  *unreadable = false;
  if (!state) return NULL;
  if (!has_snapshot) {
    if (t->init) t->init(state);
    return state;
  }
  bool read = hostd_parse(snapshot, &value);
  if (read && version && version != t->state_version) {
    read = hostd_migrate(t, state, value, version);
  } else if (read && t->fields) {
    read = hostd_get_struct(value, t->fields, state);
    for (const hostd_field *f = t->fields; f->name; f++) {
      if (f->kind < HOSTD_TEXT_KIND) continue;
      hostd_text *text = (hostd_text *)((char *)state + f->offset), given = *text;
      *text = (hostd_text){0};
      if (read) hostd_keep(text, given);
    }
  } else if (read) {
    read = t->read(state, value);
  }
  if (read) return state;
  *unreadable = true;
  hostd_drop_state(t, state);
  return NULL;
}

static void hostd_write_state(const hostd_type *t, const void *state) {
  if (t->fields)
    hostd_json_struct(t->fields, state);
  else
    t->write(state);
}

// hostd_frame reads the next frame of the input; false at its end.
static bool hostd_frame(hostd_text *input, uint8_t *kind, hostd_text *bytes) {
  if (!input->length) return false;
  if (input->length < 5) hostd_panic("hostd: a frame is cut off");
  uint32_t length = (uint32_t)hostd_number(input->at + 1, 4);
  if (length > input->length - 5) hostd_panic("hostd: a frame is cut off");
  *kind = (uint8_t)input->at[0];
  *bytes = (hostd_text){input->at + 5, length};
  *input = (hostd_text){bytes->at + length, input->length - 5 - length};
  return true;
}

static hostd_text hostd_begin(uint32_t length) {
  hostd_empty_arena();
  hostd_written = 0;
  return (hostd_text){hostd_input, length};
}

static void hostd_drop_entity(uint64_t handle) {
  if (handle >= hostd_entity_count || !hostd_entities[handle].type) return;
  hostd_entity *e = &hostd_entities[handle];
  hostd_drop_state(e->type, e->state);
  hostd_free(e->id.at);
  *e = (hostd_entity){0};
}

static int32_t hostd_do_load(const hostd_module *m, uint32_t type, uint64_t handle, uint32_t length) {
  hostd_text input = hostd_begin(length), bytes, id = {0}, snapshot = {0};
  uint8_t kind;
  bool has_snapshot = false, unreadable;
  uint64_t version = 0;
  while (hostd_frame(&input, &kind, &bytes)) {
    if (kind == 1) id = bytes;
    if (kind == 2) snapshot = bytes, has_snapshot = true;
    if (kind == 4) version = hostd_number(bytes.at, 8);
  }
  if (handle >= hostd_entity_count) {
    uint64_t count = hostd_entity_count ? hostd_entity_count : 64;
    while (count <= handle) count *= 2;
    hostd_entity *more = count > 1u << 18 ? NULL : hostd_try_alloc((uint32_t)count * sizeof(hostd_entity));
    if (!more) return 2;
    if (hostd_entities) memcpy(more, hostd_entities, hostd_entity_count * sizeof(hostd_entity));
    hostd_free(hostd_entities);
    hostd_entities = more;
    hostd_entity_count = (uint32_t)count;
  }
  const hostd_type *t = &m->types[type];
  void *state = hostd_make_state(t, snapshot, has_snapshot, version, &unreadable);
  if (!state) return unreadable ? 1 : 2;
  hostd_drop_entity(handle);
  hostd_entity *e = &hostd_entities[handle];
  *e = (hostd_entity){t, {0}, state};
  hostd_keep(&e->id, id);
  return 0;
}

// hostd_state_form returns the type of the events that carry states of a
// version.
static hostd_text hostd_state_form(uint32_t version) {
  uint32_t start = hostd_written;
  hostd_put_c("state");
  if (version > 1) {
    hostd_put_c(".v");
    hostd_put_digits(version, false);
  }
  return hostd_cut_off(start);
}

// hostd_put_today writes a stored event or state in its current form, as
// readers get it. One that has no upcast is written unchanged.
static void hostd_put_today(const hostd_type *t, hostd_text type, hostd_text payload) {
  const hostd_event *e = t->durable ? NULL : hostd_find_event(t, type);
  const hostd_older_state *o = t->durable ? t->older_states : NULL;
  while (o && o->version && hostd_compare(hostd_state_form(o->version), type) != 0) o++;
  void *state = NULL;
  bool unreadable;
  if (e) {
    e = hostd_upcast_event(t, e, &payload);
    if (!e) hostd_panic("hostd: an event of an older version cannot be decoded");
    type = hostd_c(e->type);
  } else if (o && o->version) {
    state = hostd_make_state(t, payload, true, o->version, &unreadable);
    if (!state) hostd_panic(unreadable ? "hostd: a state of an older version cannot be decoded" : "hostd: out of memory");
    type = hostd_state_form(t->state_version);
  }
  uint32_t start = hostd_open(1);
  hostd_put_name(type);
  if (state) {
    hostd_write_state(t, state);
    hostd_drop_state(t, state);
  } else {
    hostd_put(payload);
  }
  hostd_close(start);
}

// hostd_stored_event reads the next event of the input; false at its end.
static bool hostd_stored_event(hostd_text *input, hostd_text *type, hostd_text *payload) {
  hostd_text bytes;
  uint8_t kind;
  while (hostd_frame(input, &kind, &bytes)) {
    if (kind != 32) continue;
    if (bytes.length < 16) hostd_panic("hostd: an event is cut off");
    *payload = (hostd_text){bytes.at + 16, bytes.length - 16}; // after its sequence and time
    *type = hostd_cut(payload);
    return true;
  }
  return false;
}

static int32_t hostd_do_apply(uint64_t handle, uint32_t length) {
  hostd_entity *e = hostd_at(handle);
  hostd_text input = hostd_begin(length), type, payload;
  while (hostd_stored_event(&input, &type, &payload)) {
    const hostd_event *event = hostd_find_event(e->type, type);
    if (!event || !hostd_evolve(e->type, event, e->state, payload)) {
      hostd_log(HOSTD_ERROR, event ? HOSTD_TEXT_OF("hostd: an event cannot be read:") : HOSTD_TEXT_OF("hostd: an event is not declared:"));
      hostd_log(HOSTD_ERROR, type);
      return 1;
    }
    hostd_empty_arena();
  }
  return 0;
}

static uint64_t hostd_do_upcast(const hostd_module *m, uint32_t type, uint32_t length) {
  hostd_text input = hostd_begin(length), name, payload;
  while (hostd_stored_event(&input, &name, &payload)) hostd_put_today(&m->types[type], name, payload);
  return hostd_span();
}

static hostd_text hostd_read_call(hostd_call *c, const hostd_entity *e, hostd_text input, hostd_text *payload) {
  hostd_text bytes, name = {0};
  uint8_t kind;
  *payload = (hostd_text){0};
  *c = (hostd_call){.entity_id = e->id, .entity_type = e->type->name, .source = HOSTD_CLIENT, .type = e->type, .state = e->state};
  while (hostd_frame(&input, &kind, &bytes)) {
    switch (kind) {
    case 3: c->sequence = hostd_number(bytes.at, 8); break;
    case 16: name = bytes; break;
    case 17: *payload = bytes; break;
    case 18: c->command_id = bytes; break;
    case 19: c->now = (int64_t)hostd_number(bytes.at, 8); break;
    case 20: c->random = hostd_number(bytes.at, 8); break;
    case 21:
      c->source = (uint8_t)bytes.at[0];
      if (c->source == HOSTD_ENTITY) {
        hostd_text rest = {bytes.at + 1, bytes.length - 1};
        c->source_type = hostd_cut(&rest);
        c->source_id = hostd_cut(&rest);
      }
      break;
    case 22: c->due = (int64_t)hostd_number(bytes.at, 8); break;
    case 23: c->principal = bytes, c->has_principal = true; break;
    case 24: c->settings = bytes; break;
    default: break; // a kind of a later contract version
    }
  }
  return name;
}

// hostd_given reads a payload; NULL if the command or query has been rejected.
static const void *hostd_given(hostd_call *c, hostd_text payload, const hostd_field *fields) {
  void *value = hostd_temporary(hostd_struct_size(fields ? fields : hostd_no_fields) + 1);
  if (!fields) return value;
  if ((payload.length && !hostd_parse(payload, &c->payload)) || !hostd_get_struct(c->payload, fields, value)) {
    hostd_reject(c, "invalid_payload", "the payload does not match the command's fields");
    return NULL;
  }
  return value;
}

static uint64_t hostd_do_handle(uint64_t handle, uint32_t length) {
  hostd_entity *e = hostd_at(handle);
  const hostd_type *t = e->type;
  hostd_call c;
  hostd_text input = hostd_begin(length), payload, before = {0}, name = hostd_read_call(&c, e, input, &payload);
  if (t->durable) {
    hostd_write_state(t, e->state);
    char *copy = hostd_temporary(hostd_written);
    memcpy(copy, hostd_out, hostd_written);
    before = (hostd_text){copy, hostd_written};
    hostd_written = 0;
  }
  const hostd_command *command = t->commands;
  while (command && command->name && !hostd_is(name, command->name)) command++;
  if (!command || !command->name) {
    hostd_reject(&c, "unknown_name", "no such command");
  } else {
    c.reply = command->reply;
    const void *value = hostd_given(&c, payload, command->fields);
    if (value) command->handle(&c, e->state, value);
  }
  if (t->durable && c.rejected) {
    bool unreadable;
    void *state = hostd_make_state(t, before, true, 0, &unreadable);
    if (!state) hostd_panic("hostd: the state cannot be read back");
    hostd_drop_state(t, e->state);
    e->state = state;
  } else if (t->durable) {
    uint32_t mark = hostd_written, start = hostd_open(9);
    hostd_write_state(t, e->state);
    hostd_close(start);
    if (hostd_written - start == before.length && memcmp(hostd_out + start, before.at, before.length) == 0) hostd_written = mark;
  }
  return hostd_span();
}

static uint64_t hostd_do_query(uint64_t handle, uint32_t length) {
  hostd_entity *e = hostd_at(handle);
  hostd_call c;
  hostd_text input = hostd_begin(length), payload, name = hostd_read_call(&c, e, input, &payload);
  const hostd_query *query = e->type->queries;
  while (query && query->name && !hostd_is(name, query->name)) query++;
  if (!query || !query->name) {
    hostd_reject(&c, "unknown_name", "no such query");
    return hostd_span();
  }
  c.reply = query->reply;
  const void *value = hostd_given(&c, payload, query->fields);
  if (value) query->answer(&c, e->state, value);
  return hostd_span();
}

static uint64_t hostd_do_describe(const hostd_module *m) {
  hostd_begin(0);
  hostd_put_c("{\"abi\":1");
  hostd_named("name", m->name);
  hostd_named("version", m->version);
  hostd_list("entityTypes");
  for (const hostd_type *t = m->types; t->name; t++) hostd_put_type(t);
  hostd_put_c("]}");
  return hostd_span();
}

static char *hostd_do_buffer(uint32_t size) {
  if (size > hostd_input_size) {
    char *more = hostd_try_alloc(size);
    if (!more) return NULL;
    hostd_free(hostd_input);
    hostd_input = more;
    hostd_input_size = size;
  }
  if (!hostd_input && (hostd_input = hostd_try_alloc(1000))) hostd_input_size = 1000;
  return hostd_input;
}

static uint64_t hostd_do_snapshot(uint64_t handle) {
  hostd_entity *e = hostd_at(handle);
  hostd_begin(0);
  hostd_write_state(e->type, e->state);
  return hostd_span();
}

#define HOSTD_EXPORT(name) __attribute__((export_name(#name)))

// HOSTD_SERVE makes entity types, a list that ends with {0}, the module's.
#define HOSTD_SERVE(module_name, module_version, module_types)                                                                              \
  static const hostd_module hostd_served = {module_name, module_version, module_types};                                                     \
  HOSTD_EXPORT(hostd_abi) int32_t hostd_export_abi(void) { return 1; }                                                                      \
  HOSTD_EXPORT(hostd_describe) uint64_t hostd_export_describe(void) { return hostd_do_describe(&hostd_served); }                            \
  HOSTD_EXPORT(hostd_buffer) char *hostd_export_buffer(uint32_t size) { return hostd_do_buffer(size); }                                     \
  HOSTD_EXPORT(hostd_load) int32_t hostd_export_load(uint32_t type, uint64_t handle, uint32_t length) {                                     \
    return hostd_do_load(&hostd_served, type, handle, length);                                                                              \
  }                                                                                                                                         \
  HOSTD_EXPORT(hostd_apply) int32_t hostd_export_apply(uint64_t handle, uint32_t length) { return hostd_do_apply(handle, length); }         \
  HOSTD_EXPORT(hostd_handle) uint64_t hostd_export_handle(uint64_t handle, uint32_t length) { return hostd_do_handle(handle, length); }     \
  HOSTD_EXPORT(hostd_query) uint64_t hostd_export_query(uint64_t handle, uint32_t length) { return hostd_do_query(handle, length); }        \
  HOSTD_EXPORT(hostd_upcast) uint64_t hostd_export_upcast(uint32_t type, uint32_t length) {                                                 \
    return hostd_do_upcast(&hostd_served, type, length);                                                                                    \
  }                                                                                                                                         \
  HOSTD_EXPORT(hostd_snapshot) uint64_t hostd_export_snapshot(uint64_t handle) { return hostd_do_snapshot(handle); }                        \
  HOSTD_EXPORT(hostd_drop) void hostd_export_drop(uint64_t handle) { hostd_drop_entity(handle); }

#endif
