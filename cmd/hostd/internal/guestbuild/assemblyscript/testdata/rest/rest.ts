// The features of the SDK that the cart does not use, as in the Go guest "rest".

import { Context, Entity, Fields, Json, Missed, None, SourceKind, View, serve } from "hostd";
export * from "hostd-exports";

class State extends Json {
  items: i64 = 0;
  last: string = "";

  fields(f: Fields): void {
    this.items = f.i64("items", this.items);
    this.last = f.text("last", this.last);
  }
}

class PlacedV1 extends Json {
  item: string = "";

  fields(f: Fields): void {
    this.item = f.text("item", this.item);
  }
}

class Placed extends Json {
  count: i64 = 0;
  item: string = "";

  fields(f: Fields): void {
    this.count = f.i64("count", this.count);
    this.item = f.text("item", this.item);
  }
}

// The information that a command or a query has.
class Call extends Json {
  command: string = "";
  due: i64 = 0;
  id: string = "";
  now: i64 = 0;
  principal: string = "nobody";
  random: string = "";
  sequence: u64 = 0;
  setting: string = "";
  source: string = "";
  type: string = "";

  fields(f: Fields): void {
    this.command = f.text("command", this.command);
    this.due = f.i64("due", this.due);
    this.id = f.text("id", this.id);
    this.now = f.i64("now", this.now);
    this.principal = f.text("principal", this.principal);
    this.random = f.text("random", this.random);
    this.sequence = f.u64("sequence", this.sequence);
    this.setting = f.text("setting", this.setting);
    this.source = f.text("source", this.source);
    this.type = f.text("type", this.type);
  }
}

class Amount extends Json {
  n: i64 = 0;

  fields(f: Fields): void {
    this.n = f.i64("n", this.n);
  }
}

class Note extends Json {
  text: string = "";

  fields(f: Fields): void {
    this.text = f.text("text", this.text);
  }
}

class DraftV1 extends Json {
  text: string = "";

  fields(f: Fields): void {
    this.text = f.text("text", this.text);
  }
}

class DraftV2 extends Json {
  count: i64 = 0;
  text: string = "";

  fields(f: Fields): void {
    this.count = f.i64("count", this.count);
    this.text = f.text("text", this.text);
  }
}

class Draft extends Json {
  count: i64 = 0;
  first: string = "";

  fields(f: Fields): void {
    this.count = f.i64("count", this.count);
    this.first = f.text("first", this.first);
  }
}

function amount(n: i64): Amount {
  const made = new Amount();
  made.n = n;
  return made;
}

function view(v: View): Call {
  const made = new Call(), p = v.principal, limit = v.setting("limit");
  made.id = v.entityID;
  made.now = v.now;
  made.sequence = v.sequence;
  made.type = v.entityType;
  if (p) made.principal = p.kind + " " + p.name + " " + p.groups.join(",");
  made.setting = (limit ? limit : "") + (limit != null ? " true " : " false ") + (v.setting("lim") != null).toString();
  return made;
}

function place(c: Context<State>, cmd: Placed): State | null {
  c.emit(cmd);
  c.tag("a");
  c.tag("b");
  const more = new Placed();
  more.count = 1;
  more.item = cmd.item + "!";
  c.emit(more);
  return c.state;
}

function tell(c: Context<State>, _: None): Call | null {
  const told = view(c), first = c.random();
  told.command = c.commandID;
  told.due = c.due;
  told.random = first.toString() + " " + c.random().toString();
  told.source = c.source == SourceKind.Timer ? "timer" : c.source == SourceKind.Entity ? c.sourceType + " " + c.sourceID : "client";
  return told;
}

function ask(c: Context<State>, _: None): None | null {
  c.sendWithAnswer("other", "id", "do", "done", "refused", amount(i64.MIN_VALUE));
  return null;
}

function plan(c: Context<State>, _: None): None | null {
  c.schedule("a", "@every 90000000000ns", "", Missed.All, "tell", null);
  c.schedule("b", "0 3 * * mon-fri", "Europe/Berlin", Missed.Skip, "place", amount(1));
  return null;
}

function leave(c: Context<State>, _: None): None | null {
  c.passivate();
  return null;
}

function end(c: Context<State>, _: None): None | null {
  c.delete();
  return null;
}

function look(v: View, s: State, q: Amount): Call | null {
  return q.n != 0 ? v.reject<Call>("no", s.last) : view(v);
}

const rest = new Entity<State>("rest")
  .manifest('"snapshotEvery":7,"passivateAfter":"90s","retainEvents":5,"retainSnapshots":3,"alwaysOn":true,"recordPrincipal":true')
  .manifest('"shardKey":{"group":"rests","until":"-"},"acceptsFrom":["other","rest-*"]')
  .upcast<PlacedV1, Placed>("placed", 1, (old: PlacedV1): Placed => {
    const made = new Placed();
    made.count = 1;
    made.item = old.item;
    return made;
  })
  .event<Placed>("placed", (s: State, e: Placed) => {
    s.items += e.count;
    s.last = e.item;
  })
  .command<Placed, State>("place", place)
  .rejects("place", ["full", "late"])
  .command<None, Call>("tell", tell)
  .rejects("tell", [])
  .command<None, None>("ask", ask)
  .command<None, None>("plan", plan)
  .command<None, None>("leave", leave)
  .command<None, None>("end", end)
  .query<Amount, Call>("look", look);

const note = new Entity<Note>("note")
  .durable()
  .manifest('"singleton":true,"retainEvents":"snapshots","validate":false,"sends":[]')
  .command<Note, None>("set", (c: Context<Note>, cmd: Note): None | null => {
    c.state.text = cmd.text;
    return cmd.text.length > 10 ? c.reject<None>("too_long", "") : null;
  });

const draft = new Entity<Draft>("draft")
  .durable()
  .migrateState<DraftV2, Draft>(2, (old: DraftV2): Draft => {
    const made = new Draft();
    made.count = 10 * old.count;
    made.first = old.text + "!";
    return made;
  })
  .migrateState<DraftV1, DraftV2>(1, (old: DraftV1): DraftV2 => {
    const made = new DraftV2();
    made.count = String.UTF8.byteLength(old.text);
    made.text = old.text;
    return made;
  })
  .command<DraftV1, Draft>("write", (c: Context<Draft>, cmd: DraftV1): Draft | null => {
    c.state.first = cmd.text;
    return cmd.text.length > 10 ? c.reject<Draft>("too_long", "") : c.state;
  });

serve("rest-as", "1.0.0", [rest, note, draft]);
