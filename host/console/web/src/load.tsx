// The current load of nodes and entity types.
import { useState } from "preact/hooks";
import { lineOf, num, secondsOf, stream, textOf } from "./api.ts";
import { sleep, useOneTab } from "./live.ts";
import { router } from "./router.ts";
import { AsCommand, Badge, bytesText, count, Empty, Fault, Panel, rate, Taken, Wide } from "./ui.tsx";

interface Stage { p50?: string; p99?: string }

interface TypeStats {
  entityType: string; commandsPerSecond?: number; eventsPerSecond?: number; rejectionsPerSecond?: number; faultsPerSecond?: number; fuelPerSecond?: number; entitiesResident?: string;
  queue?: Stage; guest?: Stage; commit?: Stage;
}

interface NodeStats {
  commandsPerSecond?: number; eventsPerSecond?: number; queriesPerSecond?: number; rejectionsPerSecond?: number; faultsPerSecond?: number; rateLimitedPerSecond?: number; entitiesResident?: string; shardsLed?: number;
  requestsWaiting?: string; processorsUsed?: number; processors?: number; memoryBytes?: string; guestMemoryBytes?: string; logBytesPerSecond?: number; logSyncsPerSecond?: number; diskFreeBytes?: string; diskReadOnly?: boolean;
}

interface Message { nodeId?: string; node?: NodeStats; types?: TypeStats[]; moreTypes?: number; missingNodes?: string[]; leftNodes?: string[] }

/** The last messages of all nodes, and the recent rates by node and by type. */
interface Heard { nodes: Map<string, Message & { at: number }>; missing: string[]; first: string; past: Map<string, number[]> }

const nothing: Heard = { nodes: new Map(), missing: [], first: "", past: new Map() };
const interval = 2_000;
const samples = 60;

/** The types over all nodes: sums of the rates, and the highest latencies. */
function sums(h: Heard): TypeStats[] {
  const all = new Map<string, TypeStats>();
  const longer = (a?: Stage, b?: Stage) => (!a || secondsOf(b?.p99) > secondsOf(a.p99) ? b : a);
  for (const { types } of h.nodes.values())
    for (const t of types ?? []) {
      const was = all.get(t.entityType);
      const add = (name: "commandsPerSecond" | "eventsPerSecond" | "rejectionsPerSecond" | "faultsPerSecond" | "fuelPerSecond") => (was?.[name] ?? 0) + (t[name] ?? 0);
      const stages: TypeStats = { entityType: t.entityType };
      for (const s of ["queue", "guest", "commit"] as const) {
        const took = longer(was?.[s], t[s]);
        if (took) stages[s] = took;
      }
      all.set(t.entityType, {
        ...stages, commandsPerSecond: add("commandsPerSecond"), eventsPerSecond: add("eventsPerSecond"), rejectionsPerSecond: add("rejectionsPerSecond"), faultsPerSecond: add("faultsPerSecond"), fuelPerSecond: add("fuelPerSecond"),
        entitiesResident: String(num(was?.entitiesResident) + num(t.entitiesResident)),
      });
    }
  return [...all.values()].sort((a, b) => b.commandsPerSecond! - a.commandsPerSecond! || num(b.entitiesResident) - num(a.entitiesResident) || (a.entityType < b.entityType ? -1 : 1));
}

/** Adds a message. The rates of types are noted with the messages of one node. */
function taken(was: Heard, m: Message, at: number): Heard {
  const nodes = new Map(was.nodes);
  const missing = new Set(was.missing);
  for (const n of m.missingNodes ?? []) {
    nodes.delete(n);
    missing.add(n);
  }
  for (const n of m.leftNodes ?? []) {
    nodes.delete(n);
    missing.delete(n);
  }
  for (const [n, of] of nodes) if (at - of.at > 3 * interval + 5_000) nodes.delete(n);
  if (!m.nodeId || !m.node) return { ...was, nodes, missing: [...missing].sort() };
  nodes.set(m.nodeId, { ...m, at });
  missing.delete(m.nodeId);
  const first = nodes.has(was.first) ? was.first : m.nodeId;
  const now = { nodes, missing: [...missing].sort(), first, past: was.past };
  const past = new Map(was.past);
  const note = (name: string, v: number) => past.set(name, [...(past.get(name) ?? []), v].slice(-samples));
  note(`node ${m.nodeId}`, m.node.commandsPerSecond ?? 0);
  if (m.nodeId === first) for (const t of sums(now)) note(`type ${t.entityType}`, t.commandsPerSecond ?? 0);
  return { ...now, past };
}

function Spark({ of, name }: { of: number[] | undefined; name: string }) {
  const most = Math.max(1, ...(of ?? []));
  const points = (of ?? []).map((v, i) => `${((i + samples - of!.length) * 96) / (samples - 1)},${(19 - (17 * v) / most).toFixed(1)}`).join(" ");
  return <svg class="spark" viewBox="0 0 96 20" role="img" aria-label={`${name}: at most ${rate(most)} in the last ${(samples * interval) / 60_000} minutes`}><polyline points={points} /></svg>;
}

/** A rate that should be zero. */
function Some({ of, kind }: { of: number | undefined; kind: "warn" | "bad" }) {
  return of ? <Badge kind={kind}>{rate(of)}</Badge> : <span class="quiet">0</span>;
}

function time(seconds: number): string {
  const micros = seconds * 1e6;
  return micros >= 1e6 ? `${(micros / 1e6).toFixed(1)} s` : micros >= 1e3 ? `${(micros / 1e3).toFixed(micros < 1e4 ? 1 : 0)} ms` : `${micros.toFixed(0)} µs`;
}

function Took({ of }: { of: Stage | undefined }) {
  return of ? <span title={`half within ${time(secondsOf(of.p50))}, 99 of 100 within ${time(secondsOf(of.p99))}`}><span class="quiet">{time(secondsOf(of.p50))}</span> {time(secondsOf(of.p99))}</span> : <span class="quiet">–</span>;
}

export function LoadView() {
  const [heard, set] = useState(nothing);
  const [error, setError] = useState("");
  const request = { interval: `${interval / 1000}s` };
  const { taken: elsewhere, take } = useOneTab(async (signal) => {
    set(nothing);
    for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, 8_000)) {
      try {
        for await (const m of stream<Message>("cluster.WatchStats", request, signal)) {
          pause = 500;
          setError("");
          set((was) => taken(was, m, Date.now()));
        }
      } catch (e) {
        if (!signal.aborted) setError(textOf(e));
      }
      await sleep(pause, signal);
    }
  }, "load");
  const as = <AsCommand line={lineOf("top")} method="cluster.WatchStats" request={request} />;
  const nodes = [...heard.nodes].sort(([a], [b]) => (a < b ? -1 : 1));
  const types = sums(heard);
  const more = Math.max(0, ...nodes.map(([, m]) => m.moreTypes ?? 0));
  return (
    <>
      <Panel title="Nodes" aside={as}>
        <Fault text={error} />
        {elsewhere && <Taken take={take} />}
        {heard.missing.length > 0 && <p class="warning">Without {heard.missing.join(", ")}: no answer.</p>}
        {nodes.length === 0 && !error && !elsewhere && <Empty>Measuring…</Empty>}
        {nodes.length > 0 && (
          <Wide name="Load of nodes"><table>
            <thead><tr><th>Node</th><th>Commands/s</th><th class="n">Now</th><th class="n">Events/s</th><th class="n">Queries/s</th><th class="n">Rejected/s</th><th class="n">Faults/s</th><th class="n">Waiting</th><th class="n">Processors</th><th class="n">Memory</th><th class="n">Guests</th><th class="n">Log/s</th><th class="n">Disk free</th></tr></thead>
            <tbody>{nodes.map(([id, { node: n = {} }]) => (
              <tr key={id} data-load={id}>
                <td>{id}</td>
                <td><Spark of={heard.past.get(`node ${id}`)} name={`commands a second of ${id}`} /></td>
                <td class="n">{rate(n.commandsPerSecond ?? 0)}</td>
                <td class="n">{rate(n.eventsPerSecond ?? 0)}</td>
                <td class="n">{rate(n.queriesPerSecond ?? 0)}</td>
                <td class="n"><Some of={(n.rejectionsPerSecond ?? 0) + (n.rateLimitedPerSecond ?? 0)} kind="warn" /></td>
                <td class="n"><Some of={n.faultsPerSecond} kind="bad" /></td>
                <td class="n">{count(num(n.requestsWaiting))}</td>
                <td class="n"><meter min={0} max={n.processors ?? 1} value={n.processorsUsed ?? 0} aria-label={`processors that ${id} keeps busy`} /> {(n.processorsUsed ?? 0).toFixed(2)} of {n.processors}</td>
                <td class="n">{bytesText(num(n.memoryBytes))}</td>
                <td class="n">{bytesText(num(n.guestMemoryBytes))}</td>
                <td class="n">{bytesText(n.logBytesPerSecond ?? 0)}</td>
                <td class="n">{n.diskReadOnly && <Badge kind="bad">read-only</Badge>} {bytesText(num(n.diskFreeBytes))}</td>
              </tr>
            ))}</tbody>
          </table></Wide>
        )}
      </Panel>
      <Panel title="Types">
        <p class="quiet">Rates over all nodes. Latencies are the p50 and p99 of the slowest node.</p>
        {nodes.length > 0 && types.length === 0 && <Empty>No type has run since the nodes started.</Empty>}
        {types.length > 0 && (
          <Wide name="Load of entity types"><table>
            <thead><tr><th>Type</th><th>Commands/s</th><th class="n">Now</th><th class="n">Events/s</th><th class="n">Rejected/s</th><th class="n">Faults/s</th><th class="n">Fuel/s</th><th class="n">In memory</th><th class="n">Queue</th><th class="n">Guest</th><th class="n">Commit</th></tr></thead>
            <tbody>{types.map((t) => (
              <tr key={t.entityType} data-type={t.entityType}>
                <td class="id"><a href={router.path("entities", t.entityType)}>{t.entityType}</a></td>
                <td><Spark of={heard.past.get(`type ${t.entityType}`)} name={`commands a second of ${t.entityType}`} /></td>
                <td class="n" data-commands={(t.commandsPerSecond ?? 0) > 0}>{rate(t.commandsPerSecond ?? 0)}</td>
                <td class="n">{rate(t.eventsPerSecond ?? 0)}</td>
                <td class="n"><Some of={t.rejectionsPerSecond} kind="warn" /></td>
                <td class="n"><Some of={t.faultsPerSecond} kind="bad" /></td>
                <td class="n">{rate(t.fuelPerSecond ?? 0)}</td>
                <td class="n">{count(num(t.entitiesResident))}</td>
                <td class="n"><Took of={t.queue} /></td>
                <td class="n"><Took of={t.guest} /></td>
                <td class="n"><Took of={t.commit} /></td>
              </tr>
            ))}</tbody>
          </table></Wide>
        )}
        {more > 0 && <p class="quiet">{count(more)} more types run on some node.</p>}
      </Panel>
    </>
  );
}
