// Sends a command and follows the events of a type at a fake cluster with
// failures. Prints the outcome as JSON.
import { HostdError, Rejected, historyLost, outcomeUnknown } from "./core.js";
import { Client, isRejected, type Event } from "./entities.js";

interface Account {
  commands: { deposit: { payload: { amount: number }; reply: { balance: number | string }; rejections: "not_open" | "too_late" } };
  queries: Record<string, { payload: unknown; reply: unknown }>;
  event: Event<"deposited", { amount: number }> | Event<"opened", null>;
  state: unknown;
}

declare const process: { argv: string[]; stdout: { write(text: string): void } };

const [, , what, ...addresses] = process.argv;
const hostd = new Client<{ account: Account }>(addresses, { minBackoffMs: 1, maxBackoffMs: 5, attemptMs: 60_000, timeoutMs: 60_000 });
const account = hostd.entity("account", "a");
const out: Record<string, unknown> = {};

try {
  switch (what) {
    case "send": {
      const reply = await account.send("deposit", { amount: 1 });
      out["balance"] = reply.value.balance;
      out["duplicate"] = reply.duplicate;
      break;
    }
    case "again": {
      const reply = await account.send("deposit", { amount: 1 }, { commandId: "mine", firstTried: Date.now() - 5_000 });
      out["balance"] = reply.value.balance;
      break;
    }
    case "events": {
      const events: Account["event"][] = [];
      for await (const e of hostd.subscribe("account", { cursor: "c0" })) {
        events.push(e);
        if (e.sequence === 3) break;
      }
      out["events"] = events.map((e) => [e.sequence, e.type, e.type === "deposited" ? e.data.amount : null]);
      break;
    }
    case "projection": {
      const batches: unknown[] = [];
      const ended = new AbortController();
      out["batches"] = batches;
      await hostd.projection("account", {
        maxEvents: 2,
        subscription: { shards: [3, 4], upcast: true, fromNewest: true, skipTruncated: true, signal: ended.signal, skipped: (n) => batches.push(`${n} skipped`) },
        apply: async ({ events, cursor }) => {
          batches.push([events.map((e) => e.sequence), cursor, events.map((e) => e.storedType ?? "")]);
          await new Promise((go) => setTimeout(go, 20)); // others come meanwhile
          if (events.at(-1)!.sequence === 4) ended.abort();
        },
      }).run();
      break;
    }
    default:
      throw new Error("nothing is asked for");
  }
} catch (e) {
  if (!(e instanceof HostdError)) throw e;
  out["code"] = e.code;
  out["name"] = e.name;
  out["reason"] = e.reason;
  out["retryAfterMs"] = e.retryAfterMs;
  out["violations"] = e.violations;
  out["historyLost"] = historyLost(e);
  out["unknown"] = outcomeUnknown(e);
  if (e instanceof Rejected) out["rejection"] = e.rejection;
  if (isRejected(e, account, "deposit") && e.rejection === "not_open") out["notOpen"] = true;
}
process.stdout.write(JSON.stringify(out));
