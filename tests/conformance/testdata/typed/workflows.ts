// What the compiler knows of workflows.
import { type Infer, schema, workflow } from "@hostd/guest";

const Trip = schema({ flight: "string", seats: "integer" });
type Trip = Infer<typeof Trip>;
const Left = schema({ left: "integer" });

workflow("trip", Trip, async (f, trip) => {
  // @ts-expect-error
  trip.hotel;
  const { left } = await f.call("offer", trip.flight, "take", { seats: trip.seats }, { within: "1h30m", retry: { attempts: 3 }, reply: Left });
  // @ts-expect-error
  left.toUpperCase();
  const first = await Promise.race([f.wait<string>("payment"), f.sleep(1_000)]);
  // @ts-expect-error
  first.length;
  // @ts-expect-error
  await f.call("offer", trip.flight, "take", {}, { retry: { codes: ["busy"] } });
  // @ts-expect-error
  f.cancelled = true;
  if (!await f.patched("x")) return f.checkpoint(trip);
  return left + (await f.run<number>("trip", f.id + "-2", trip, { onParentEnd: "cancel" }));
}, { sends: ["offer", "trip"] });

workflow("untyped", async (f, input: Trip) => input.seats + f.random());
// @ts-expect-error
workflow("synchronous", (f) => f.uuid());
// @ts-expect-error
workflow("snapshots", async () => {}, { snapshotEvery: 5 });
