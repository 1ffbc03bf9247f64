// States that have had other forms.
import { durable, int64, reject, schema, serve } from "@hostd/guest";

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
  })
  .query("state", (_, s) => s);

const loose = durable<{ words: string[] }>("loose", { initial: () => ({ words: [] }) })
  .migrateState(1, (old: { text: string }) => ({ words: old.text.split(" ") }));

serve("drafts", "1.0.0", draft, loose);
