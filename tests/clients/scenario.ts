// The scenario that every kind of client runs: see story_test.go.
import { Hostd, HostdError, Rejected, SequenceMismatch, type AccountEvent } from "./hostd.js";

export interface Config {
  addresses: string[];
  id: string;
  /** The URL that kills the node that leads the entity. */
  kill: string;
  /** The entity's shard. */
  shard: number;
}

export async function story({ addresses, id, kill, shard }: Config): Promise<string[]> {
  const told: string[] = [];
  const hostd = new Hostd(addresses, { timeoutMs: 60_000 });
  const account = hostd.entity("account", id);
  const ended = new AbortController();
  const following = follow(hostd, id, ended.signal);
  following.catch(() => {});

  const opened = await account.send("open");
  told.push(`open: balance ${opened.value.balance}, sequence ${opened.sequence}, events ${opened.eventCount}, duplicate ${opened.duplicate}`);
  const first = await account.send("deposit", { amount: 100 });
  told.push(`deposit 100: balance ${first.value.balance}, sequence ${first.sequence}`);
  told.push(await refusal("withdraw 500", account.send("withdraw", { amount: 500 })));
  told.push(await refusal("deposit 0", account.send("deposit", { amount: 0 })));
  for (let i = 0; i < 2; i++) {
    const same = await account.send("deposit", { amount: 5 }, { commandId: id + "-same" });
    told.push(`deposit 5: balance ${same.value.balance}, sequence ${same.sequence}, duplicate ${same.duplicate}`);
  }
  told.push(await refusal("withdraw 1 at 1", account.send("withdraw", { amount: 1 }, { expectedSequence: 1 })));
  // @ts-expect-error: the module has no such member.
  told.push(await refusal("deposit of what is misspelt", account.send("deposit", { amuont: 1 })));

  let killing: Promise<Response> | undefined;
  let last = first;
  for (let i = 0; i < 20; i++) {
    if (i === 7) killing = fetch(kill, { method: "POST" });
    last = await account.send("deposit", { amount: 1 });
  }
  const killed = await killing!;
  if (!killed.ok) throw new Error(`no node was killed: ${killed.status}`);
  told.push(`20 deposits: balance ${last.value.balance}, sequence ${last.sequence}`);
  const balance = await account.query("balance");
  told.push(`query: balance ${balance.value.balance}, sequence ${balance.sequence}`);
  const state = await account.state();
  told.push(`state: balance ${state.value.balance}, open ${state.value.open}`);
  told.push(await following);
  ended.abort();
  told.push(...(await view(hostd, id, shard)));
  told.push(await newest(hostd, id, last.sequence));
  return told;
}

/** Makes a view in two runs: the second continues where the first failed. */
async function view(hostd: Hostd, id: string, shard: number): Promise<string[]> {
  let at = { cursor: "", events: 0, deposited: 0 };
  const run = (maxEvents: number, batches: number) => hostd.projection("account", {
    maxEvents,
    subscription: { cursor: at.cursor, follow: false, shards: [shard], upcast: true },
    apply: async ({ events, cursor, lagMs }) => {
      if (batches-- === 0) throw new Error("enough");
      if (events.length > maxEvents || !(lagMs < 3_600_000)) throw new Error(`${events.length} events, ${lagMs} ms late`);
      const next = { ...at, cursor };
      for (const e of events) {
        if (e.entityId !== id) continue;
        next.events++;
        if (e.type === "deposited") next.deposited += Number(e.data.amount);
      }
      await Promise.resolve();
      at = next;
    },
  }).run();
  const told: string[] = [];
  await run(4, 2).then(() => told.push("view: it has not failed"), (e: Error) => told.push(`view: ${e.message}, all ${at.events === 23}`));
  await run(5, Infinity);
  told.push(`view: ${at.events} events, deposited ${at.deposited}`);
  return told;
}

/** Follows from the newest event, while others are made. */
async function newest(hostd: Hostd, id: string, before: number): Promise<string> {
  const ended = new AbortController();
  const first = (async () => {
    for await (const e of hostd.subscribe("account", { fromNewest: true, signal: ended.signal })) {
      if (e.entityId === id) return e.sequence;
    }
    return 0;
  })();
  let over = false;
  first.finally(() => (over = true)).catch(() => {});
  while (!over) await hostd.entity("account", id).send("deposit", { amount: 1 });
  const sequence = await first;
  ended.abort();
  return `from newest: only later events ${sequence > before}`;
}

async function refusal(what: string, sent: Promise<unknown>): Promise<string> {
  try {
    await sent;
    return `${what}: done`;
  } catch (e) {
    if (e instanceof Rejected) return `${what}: rejected ${e.rejection}`;
    if (e instanceof SequenceMismatch) return `${what}: it is at ${e.actual}`;
    if (e instanceof HostdError) return `${what}: ${e.code} ${e.violations.map((v) => v.field).join()}`;
    throw e;
  }
}

/** Follows the events of the type until the entity has had 23. */
async function follow(hostd: Hostd, id: string, signal: AbortSignal): Promise<string> {
  const mine: AccountEvent[] = [];
  for await (const e of hostd.subscribe("account", { signal })) {
    if (e.entityId === id) mine.push(e);
    if (e.entityId === id && e.sequence >= 23) break;
  }
  const inOrder = mine.every((e, i) => (e as { sequence?: number }).sequence === i + 1);
  let sum = 0;
  for (const e of mine) if (e.type === "deposited") sum += Number(e.data.amount);
  return `events: ${mine.length}, in order ${inOrder}, the first ${mine[0]?.type}, deposited ${sum}`;
}

