// Workflows that flows_test.go has in Go too, and mistakes of workflows.
import { type Flow, reject, Rejection, schema, serve, workflow } from "@hostd/guest";

const Numbered = schema({ n: "integer?" });
interface Numbered { n?: number }

const double = (f: Flow, n: number, options = {}): Promise<{ n: number }> => f.call("adder", "a", "double", { n }, options);

// The number that a call of n has added, which is 1 if it is rejected as it must.
async function checked(n: number, call: Promise<{ n: number }>): Promise<number> {
  try {
    const got = await call;
    if (n % 7 === 3 || got.n !== 2 * n + 1) throw reject("mixed", `the call of ${n} got ${got.n}`);
    return got.n;
  } catch (e) {
    if (!(e instanceof Rejection)) throw e;
    if (e.code === "deadline_exceeded") return 0;
    if (n % 7 === 3 && e.code === "unlucky") return 1;
    throw e;
  }
}

const mixed = workflow("mixed", Numbered, async (f, input) => {
  let sum = 0;
  for (let i = 0; i < (input.n ?? 0); i++) {
    switch (Math.floor(f.random() * 5)) {
      case 0:
        sum += await checked(i, double(f, i, { within: "1s" }));
        break;
      case 1: {
        const all = [0, 1, 2, 3].map((j) => double(f, i + j, { retry: { attempts: 3, initial: "1s", most: "1m", codes: ["unlucky"] }, cancellable: i % 2 === 0 }));
        for (const [j, call] of all.entries()) sum += await checked(i + j, call);
        break;
      }
      case 2: {
        const a = double(f, i), b = double(f, i + 1);
        const won = await Promise.race([a, b, f.sleep("1s")].map((p, k) => p.then(() => k, () => k)));
        if (won === 1) await checked(i + 1, b);
        break;
      }
      case 3:
        await f.sleep(1_000);
        break;
      case 4:
        try {
          await f.wait("go", { within: 60_000 });
        } catch (e) {
          if ((e as Rejection).code !== "deadline_exceeded") throw e;
        }
    }
  }
  return { n: sum };
});

const Progress = schema({ n: "integer", at: "integer?", sum: "integer?" });

const steady = workflow("steady", Progress, async (f, { n, at = 0, sum = 0 }) => {
  while (at < n) {
    f.uuid();
    sum += (await double(f, 7 * at)).n;
    at++;
    if (at % 3 === 0 && at < n) {
      void f.sleep("1h");
      f.send("log", "l", "note", { n, at, sum });
      return f.checkpoint({ n, at, sum });
    }
  }
  for (let i = 0; i < 3; i++) sum += 1_000_000 * (await f.wait<Numbered>("last")).n!;
  return { n, at, sum: f.cancelled ? -sum : sum };
});

const bulk = workflow("bulk", Numbered, async (f, { n = 0 }) => {
  for (let i = 0; i < n; i++) f.send("log", "l", "note", { n: i });
  const errors: unknown[] = []; // in the order in which they come
  await Promise.all([1, 2, 3].map((i) => (
    f.run("mixed", `child-${i}`, { n: i }, { onParentEnd: i === 2 ? "cancel" : i === 3 ? "abandon" : "terminate", within: "2h" }).catch((e) => errors.push(e))
  )));
  if (errors.length > 0) throw errors[0];
});

const patched = workflow("patched", async (f) => {
  if (await f.patched("first")) await double(f, 0);
  else await f.sleep("1s");
  await f.sleep("2s");
  if (await f.patched("second")) f.send("log", "l", "note");
  await double(f, 7);
});

// Makes checkpoints in a loop, and waits for a signal before every tenth one.
const loop = workflow("loop", Progress, async (f, { n, at = 0 }) => {
  at++;
  if (at % 10 === 0) await f.wait("go");
  return at < n ? f.checkpoint({ n, at, sum: 0 }) : { n, at, sum: 0 };
});

// Runs children one after another, even if they fail.
const family = workflow("family", Numbered, async (f, { n = 0 }) => {
  for (let i = 0; i < n; i++) {
    try {
      await f.run("mixed", `child-${i}`, { n: i }, { within: "2h" });
    } catch (e) {
      if (!(e instanceof Rejection) || !["deadline_exceeded", "unlucky"].includes(e.code)) throw e;
    }
  }
  return { n };
});

// Cannot read the checkpoints of steady.
const spelled = workflow("spelled", schema({ at: "string" }), async (_, input) => input);

const withdraw = (f: Flow, id: string, n: number): Promise<unknown> => f.call("account", id, "withdraw", { n });

// Versions of one function, which the test loads with the history of the first.
const versions: ((f: Flow) => Promise<unknown>)[] = [
  async (f) => { await withdraw(f, "a", 1); await f.sleep("1s"); await withdraw(f, "b", 2); },
  async (f) => { await withdraw(f, "a", 1); await f.sleep("1s"); await withdraw(f, "b", 2); await withdraw(f, "c", 3); },
  async (f) => { await withdraw(f, "a", 1); await f.sleep("1s"); await withdraw(f, "c", 2); },
  async (f) => { await withdraw(f, "a", 1); await f.sleep("1s"); await withdraw(f, "b", 3); },
  async (f) => { await withdraw(f, "a", 5); await f.sleep("1s"); await withdraw(f, "b", 2); },
  async (f) => { await withdraw(f, "a", 1); await withdraw(f, "b", 2); },
  async (f) => { await withdraw(f, "a", 1); f.send("log", "l", "note", { n: 1 }); await f.sleep("1s"); await withdraw(f, "b", 2); },
  async (f) => { await withdraw(f, "a", 1); await f.sleep("1m"); await withdraw(f, "b", 2); },
  async (f) => { await withdraw(f, "a", 1); await f.sleep("1s"); },
  async (f) => { await withdraw(f, "a", 1); await f.sleep("1s"); await Promise.all([withdraw(f, "b", 2), withdraw(f, "b", 3)]); },
  async (f) => { await withdraw(f, "a", 1); await f.sleep("1s"); return f.checkpoint(null); },
  async (f) => { await withdraw(f, "a", 1); throw new TypeError("broken"); },
];

let acted = 0;

// Mistakes, which end the instance or quarantine the run.
const mistakes: { [name: string]: (f: Flow) => Promise<unknown> } = {
  foreign: async (f) => {
    await withdraw(f, "a", 1);
    await new Promise(() => {});
  },
  spin: async () => { for (;;) await null; },
  thrown: async (f) => {
    await withdraw(f, "a", 1);
    (undefined as unknown as { of: number }).of++;
  },
  open: async (f) => {
    void withdraw(f, "a", 1);
    await f.checkpoint(1);
  },
  dates: async (f) => {
    const before = Date.now();
    await f.sleep("1h");
    return [before, Date.now() - before, new Date().toISOString() === f.now.toISOString(), Math.random() === Math.random()];
  },
  finally: async (f) => {
    try {
      await f.sleep("1h");
    } finally {
      acted++;
      await withdraw(f, "undo", 1);
    }
  },
  acted: async () => acted,
};

serve("flows", "1.0.0", mixed, steady, bulk, patched, loop, family, spelled,
  ...versions.map((body, i) => workflow(`version-${i}`, body)),
  ...Object.entries(mistakes).map(([name, body]) => workflow(name, body)));
