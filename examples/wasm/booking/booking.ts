import { entity, type Flow, type Infer, reject, schema, serve, workflow } from "@hostd/guest";

const Seats = schema({ seats: "integer" });
const Left = schema({ left: "integer" });

/** A flight or a hotel, whose seats bookings take. */
const offer = entity("offer", { initial: () => ({ left: 0 }), state: Left, acceptsFrom: ["booking"] })
  .event("changed", Seats, (s, e) => { s.left += e.seats; })
  .command("add", Seats, (c, s, { seats }) => {
    c.emit("changed", { seats });
    return { left: s.left };
  }, { reply: Left })
  .command("take", Seats, (c, s, { seats }) => {
    if (s.left < seats) throw reject("sold_out", `${c.entityID} has ${s.left} seats left`);
    c.emit("changed", { seats: -seats });
    return { left: s.left };
  }, { reply: Left, rejects: ["sold_out"] })
  .query("left", (_, s) => ({ left: s.left }), { reply: Left });

const Trip = schema({ flight: "string", hotel: "string", seats: "integer" });
type Trip = Infer<typeof Trip>;
const Payment = schema({ by: "string" });

async function book(f: Flow, trip: Trip) {
  const { seats } = trip;
  const taken: string[] = [];
  const take = async (id: string) => {
    await f.call("offer", id, "take", { seats }, { cancellable: false });
    taken.push(id);
  };
  try {
    const takes = await Promise.allSettled([take(trip.flight), take(trip.hotel)]);
    for (const each of takes) if (each.status === "rejected") throw each.reason;
    if (f.cancelled) throw reject("cancelled", "the booking was cancelled");
    const payment = await f.wait("payment", { within: "48h", schema: Payment });
    return { seats, paidBy: payment.by };
  } catch (e) {
    await Promise.all(taken.map((id) => f.call("offer", id, "add", { seats }, { cancellable: false })));
    throw e;
  }
}

serve("booking", "1.0.0", offer, workflow("booking", Trip, book, { sends: ["offer"] }));
