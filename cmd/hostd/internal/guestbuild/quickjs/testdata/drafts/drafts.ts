// States and events that have had other forms.
import { durable, entity, int64, reject, schema, serve } from "@hostd/guest";

interface Draft { count: bigint; first: string }

const draft = durable<Draft>("draft", {
  initial: () => ({ count: 0n, first: "" }),
  state: schema({ count: int64(), first: "string" }),
})
  .migrateState(2, schema({ count: int64(), text: "string" }), (old) => ({ count: 10n * old.count, first: old.text + "!" }))
  .migrateState(1, schema({ text: "string" }), ({ text }) => ({ count: text.length, text }))
  .command("write", schema({ text: "string" }), (_, s, cmd) => {
    s.first = cmd.text;
    if (cmd.text.length > 10) throw reject("too_long", "");
    return s;
  }, { rejects: ["too_long"] })
  .query("state", (_, s) => s);

const loose = durable<{ words: string[] }>("loose", { initial: () => ({ words: [] }) })
  .migrateState(1, (old: { text: string }) => ({ words: old.text.split(" ") }));

const order = entity<{ total: bigint; last: string }>("order", {
  initial: () => ({ total: 0n, last: "" }),
  state: schema({ total: int64(), last: "string" }),
})
  .event("placed", schema({ count: int64(), item: "string" }), (s, e) => {
    s.total += e.count;
    s.last = e.item;
  })
  .upcast("placed", 1, schema({ item: "string" }), (old) => ({ count: 1n, item: old.item }))
  .upcast("placed", 2, schema({ count: int64(), item: "string" }), (old) => ({ count: 2n * old.count, item: old.item, note: undefined }))
  .migrateState(1, schema({ sum: int64() }), (old) => ({ total: old.sum, last: "?" }))
  .command("place", schema({ item: "string" }), (c, _, cmd) => { c.emit("placed", { count: 3n, item: cmd.item }); })
  .query("state", (_, s) => s);

serve("drafts", "1.0.0", draft, loose, order);
