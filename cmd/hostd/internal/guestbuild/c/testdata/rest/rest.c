// The features of the SDK that the cart does not use, as in the Go guest "rest".

#include "hostd.h"

typedef struct {
  int64_t items;
  hostd_text last;
} state;

typedef struct {
  int64_t count;
  hostd_text item;
} placed;

typedef struct {
  hostd_text command;
  int64_t due;
  hostd_text id;
  int64_t now;
  hostd_text principal, random;
  uint64_t sequence;
  hostd_text setting, source, type;
} call;

typedef struct {
  int64_t n;
} number;

typedef struct {
  hostd_text text;
} note;

static const hostd_field state_fields[] = {HOSTD_I64(state, items), HOSTD_TEXT(state, last), HOSTD_END};
static const hostd_field placed_v1_fields[] = {HOSTD_TEXT(placed, item), HOSTD_END};
static const hostd_field placed_fields[] = {HOSTD_I64(placed, count), HOSTD_TEXT(placed, item), HOSTD_END};
static const hostd_field call_fields[] = {
    HOSTD_TEXT(call, command), HOSTD_I64(call, due),      HOSTD_TEXT(call, id),      HOSTD_I64(call, now),     HOSTD_TEXT(call, principal),
    HOSTD_TEXT(call, random),  HOSTD_U64(call, sequence), HOSTD_TEXT(call, setting), HOSTD_TEXT(call, source), HOSTD_TEXT(call, type),
    HOSTD_END,
};
static const hostd_field number_fields[] = {HOSTD_I64(number, n), HOSTD_END};
static const hostd_field note_fields[] = {HOSTD_TEXT(note, text), HOSTD_END};

// join concatenates two texts with a separator.
static hostd_text join(hostd_text a, const char *between, hostd_text b) {
  hostd_text middle = hostd_c(between);
  char *at = hostd_temporary(a.length + middle.length + b.length);
  memcpy(at, a.at, a.length);
  memcpy(at + a.length, middle.at, middle.length);
  memcpy(at + a.length + middle.length, b.at, b.length);
  return (hostd_text){at, a.length + middle.length + b.length};
}

static hostd_text digits(uint64_t value) {
  char *end = (char *)hostd_temporary(24) + 24, *at = end;
  do *--at = (char)('0' + value % 10);
  while ((value /= 10) > 0);
  return (hostd_text){at, (uint32_t)(end - at)};
}

static call view(const hostd_call *c) {
  call v = {.id = c->entity_id, .now = c->now, .sequence = c->sequence, .type = hostd_c(c->entity_type), .principal = hostd_c("nobody")};
  hostd_principal p;
  if (hostd_get_principal(c, &p)) {
    hostd_text group;
    v.principal = join(join(p.kind, " ", p.name), " ", hostd_c(""));
    for (bool first = true; hostd_next_group(&p, &group); first = false) v.principal = join(v.principal, first ? "" : ",", group);
  }
  hostd_text none;
  bool found = hostd_setting(c, "limit", &v.setting), more = hostd_setting(c, "lim", &none);
  v.setting = join(join(v.setting, " ", hostd_c(found ? "true" : "false")), " ", hostd_c(more ? "true" : "false"));
  return v;
}

static void placed_v1(void *made, const void *old) {
  const placed *o = old;
  *(placed *)made = (placed){1, o->item};
}

static void on_placed(void *s, const void *event) {
  const placed *e = event;
  ((state *)s)->items += e->count;
  hostd_keep(&((state *)s)->last, e->item);
}

static const hostd_event events[] = {
    {"placed.v2", on_placed, placed_fields},
    {"placed", NULL, placed_v1_fields, "placed.v2", placed_v1},
    {0},
};

static void place(hostd_call *c, void *s, const void *command) {
  const placed *cmd = command;
  hostd_emit(c, "placed.v2", cmd);
  hostd_tag(c, "a");
  hostd_tag(c, "b");
  hostd_emit(c, "placed.v2", &(placed){1, join(cmd->item, "!", hostd_c(""))});
  hostd_reply(c, s);
}

static void tell(hostd_call *c, void *s, const void *command) {
  (void)s, (void)command;
  call told = view(c);
  told.command = c->command_id;
  told.due = c->due;
  hostd_text first = digits(hostd_random(c));
  told.random = join(first, " ", digits(hostd_random(c)));
  told.source = c->source == HOSTD_TIMER ? hostd_c("timer") : c->source == HOSTD_ENTITY ? join(c->source_type, " ", c->source_id) : hostd_c("client");
  hostd_reply(c, &told);
}

static void ask(hostd_call *c, void *s, const void *command) {
  (void)s, (void)command;
  hostd_send_with_answer(c, "other", hostd_c("id"), "do", "done", "refused", number_fields, &(number){INT64_MIN});
}

static void plan(hostd_call *c, void *s, const void *command) {
  (void)s, (void)command;
  hostd_schedule(c, "a", "@every 90000000000ns", "", HOSTD_ALL, "tell", NULL, NULL);
  hostd_schedule(c, "b", "0 3 * * mon-fri", "Europe/Berlin", HOSTD_SKIP, "place", number_fields, &(number){1});
}

static void leave(hostd_call *c, void *s, const void *command) {
  (void)s, (void)command;
  hostd_passivate(c);
}

static void end(hostd_call *c, void *s, const void *command) {
  (void)s, (void)command;
  hostd_delete(c);
}

static const char *const place_rejects[] = {"full", "late", NULL};
static const char *const tell_rejects[] = {NULL};

static const hostd_command commands[] = {
    {"place", place, placed_fields, state_fields, .rejects = place_rejects},
    {"tell", tell, NULL, call_fields, .rejects = tell_rejects},
    {.name = "ask", .handle = ask},
    {.name = "plan", .handle = plan},
    {.name = "leave", .handle = leave},
    {.name = "end", .handle = end},
    {0},
};

static void look(hostd_call *c, const void *s, const void *query) {
  if (((const number *)query)->n != 0) {
    hostd_text last = ((const state *)s)->last;
    hostd_reject_text(c, hostd_c("no"), last);
    return;
  }
  call v = view(c);
  hostd_reply(c, &v);
}

static const hostd_query queries[] = {{"look", look, number_fields, call_fields}, {0}};

static void set(hostd_call *c, void *s, const void *command) {
  hostd_text text = ((const note *)command)->text;
  hostd_keep(&((note *)s)->text, text);
  if (text.length > 10) hostd_reject(c, "too_long", "");
}

static const hostd_command note_commands[] = {{"set", set, note_fields}, {0}};

typedef struct {
  int64_t count;
  hostd_text text;
} draft; // the text is called first

static const hostd_field draft_v1_fields[] = {HOSTD_TEXT(draft, text), HOSTD_END};
static const hostd_field draft_v2_fields[] = {HOSTD_I64(draft, count), HOSTD_TEXT(draft, text), HOSTD_END};
static const hostd_field draft_fields[] = {HOSTD_I64(draft, count), HOSTD_FIELD(draft, text, "first", HOSTD_TEXT_KIND), HOSTD_END};

static void draft_v2(void *s, const void *old) {
  const draft *o = old;
  ((draft *)s)->count = 10 * o->count;
  hostd_keep(&((draft *)s)->text, join(o->text, "!", hostd_c("")));
}

static void draft_v1(void *s, const void *old) {
  const draft *o = old;
  draft_v2(s, &(draft){o->text.length, o->text});
}

static const hostd_older_state drafts[] = {{1, draft_v1_fields, draft_v1}, {2, draft_v2_fields, draft_v2}, {0}};

static void write_draft(hostd_call *c, void *s, const void *command) {
  hostd_text text = ((const draft *)command)->text;
  hostd_keep(&((draft *)s)->text, text);
  if (text.length > 10)
    hostd_reject(c, "too_long", "");
  else
    hostd_reply(c, s);
}

static const hostd_command draft_commands[] = {{"write", write_draft, draft_v1_fields, draft_fields}, {0}};

static const hostd_type types[] = {
    {
        .name = "rest",
        .state_size = sizeof(state),
        .fields = state_fields,
        .events = events,
        .commands = commands,
        .queries = queries,
        .options = "\"snapshotEvery\":7,\"passivateAfter\":\"90s\",\"retainEvents\":5,\"retainSnapshots\":3,\"alwaysOn\":true,"
                   "\"recordPrincipal\":true,\"shardKey\":{\"group\":\"rests\",\"until\":\"-\"},\"acceptsFrom\":[\"other\",\"rest-*\"]",
    },
    {
        .name = "note",
        .durable = true,
        .state_size = sizeof(note),
        .fields = note_fields,
        .commands = note_commands,
        .options = "\"singleton\":true,\"retainEvents\":\"snapshots\",\"validate\":false,\"sends\":[]",
    },
    {
        .name = "draft",
        .durable = true,
        .state_size = sizeof(draft),
        .fields = draft_fields,
        .state_version = 3,
        .older_states = drafts,
        .commands = draft_commands,
    },
    {0},
};

HOSTD_SERVE("rest-c", "1.0.0", types)
