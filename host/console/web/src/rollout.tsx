// A module that serves a part of a type, and the progress of its rollout.
import { call, lineOf, num } from "./api.ts";
import { useRead } from "./live.ts";
import { router } from "./router.ts";
import { Ask, AsCommand, Badge, count, Digest, Fact, Fault, Panel, span, When, Wide } from "./ui.tsx";

interface Counts { commands?: string; rejections?: string; faults?: string; p99?: string }

interface Rollout {
  entityType: string; digest?: string; olderDigest?: string; state?: string; share?: number; prefix?: string; remainingEntityIds?: string[]; entityTypes?: string[]; requestedBy?: string; note?: string;
  steps?: number[]; pause?: string; dueAt?: string; rules?: string; newer?: Counts; older?: Counts; missingNodeCount?: number;
}

const states: Record<string, [name: string, kind: string]> = {
  STATE_RUNNING: ["running", "good"], STATE_PAUSED: ["paused", "warn"], STATE_ABORTING: ["aborting", "bad"], STATE_WRITE_PAUSED: ["goes back, write-paused", "bad"], STATE_ABORTED: ["aborted", "bad"],
  STATE_VERIFYING: ["verifying", "warn"], STATE_REJECTED: ["was rejected", "bad"],
};

/** The part that a module has in a type for which another module is active. */
export interface Part { entityType: string; kind?: string; share?: number; prefix?: string; remainingEntities?: number; state?: string }

/** Describes the part of a type that a module serves or shadows. */
export function partText(p: Part): string {
  const remaining = num(p.remainingEntities) > 0 ? `${p.remainingEntities} remaining` : "";
  if (p.kind === "KIND_SHADOW") return `${percent(num(p.share))} of commands, shadow`;
  if (p.kind === "KIND_REMAINDER") return remaining || "none";
  if (p.kind === "KIND_VERIFICATION") return states[p.state ?? ""]?.[0] ?? "none";
  return `${[num(p.share) > 0 ? percent(num(p.share)) : "", p.prefix ? `${p.prefix}…` : "", remaining].filter(Boolean).join(" and ") || "none"}, ${states[p.state ?? ""]?.[0] ?? "rollout"}`;
}

const percent = (share: number) => `${Number((share / 100).toFixed(2))} %`;

/** The rollout of a type; nothing if one module serves the whole type. */
export function RolloutPanel({ type, changed }: { type: string; changed: () => void }) {
  const request = { entityType: type };
  const { data, error, code, reload } = useRead<{ rollout?: Rollout; aborted?: string }>("module.GetRollout", request, 2_000);
  const r = data?.rollout;
  if (error) return code === "not_found" ? null : <Panel title={`Rollout of ${type}`}><Fault text={error} /></Panel>;
  if (data?.aborted) return <Panel title={`Rollout of ${type}`}><p class="warning" data-aborted="true">{type} has no rollout; {data.aborted}.</p></Panel>;
  if (!r) return null;
  const [state, kind] = states[r.state ?? ""] ?? [r.state ?? "", ""];
  const act = (label: string, flag: string, action: string, title: string, text: string, danger = false) => {
    const change = { entityType: type, action };
    return <Ask needs={{ verb: "deploy", entityType: type }} label={label} title={title} text={text} danger={danger} line={lineOf("module", "rollout", type, [flag])} method="module.ChangeRollout" request={change} run={async () => {
      await call("module.ChangeRollout", change, false);
      reload();
      changed();
    }} />;
  };
  const going = r.state === "STATE_RUNNING" || r.state === "STATE_PAUSED";
  return (
    <Panel label="Rollout" title={<>Rollout of {type} <Badge kind={kind}>{state}</Badge></>} aside={<AsCommand line={lineOf("module", "rollout", type)} method="module.GetRollout" request={request} />}>
      <dl class="facts" data-rollout={r.state}>
        <Fact name="New module">{<Digest of={r.digest} />}</Fact>
        <Fact name="It serves">{[num(r.share) > 0 ? percent(num(r.share)) : "", r.prefix ? `${r.prefix}…` : ""].filter(Boolean).join(" and ") || "none"}</Fact>
        <Fact name="Old module"><Digest of={r.olderDigest} /></Fact>
        {(r.steps ?? []).length > 0 && <Fact name="Then">{r.steps!.map(percent).join(", ")}{r.pause && <span class="quiet">, {span(parseFloat(r.pause) * 1000)} apart</span>}</Fact>}
        {r.dueAt && <Fact name="Next step"><When at={r.dueAt} /></Fact>}
        {(r.entityTypes ?? []).length > 1 && <Fact name="Types of the rollout">{r.entityTypes!.join(", ")}</Fact>}
        {r.rules && <Fact name="Aborted if"><code>{r.rules.split(",").map((rule, i) => <span key={rule}>{i > 0 && <>,<wbr /></>}{rule}</span>)}</code></Fact>}
        {r.requestedBy && <Fact name="By">{r.requestedBy}</Fact>}
      </dl>
      {r.note && <p class="warning">{r.note}</p>}
      {(r.newer || r.older) && (
        <Wide name="Table of both modules"><table>
          <thead><tr><th>Module</th><th class="n">Commands</th><th class="n">Rejected</th><th class="n">Faults</th><th class="n">99 of 100 within</th></tr></thead>
          <tbody>{([["newer", r.newer], ["older", r.older]] as const).map(([name, c]) => (
            <tr key={name}><td>{name}</td><td class="n">{count(num(c?.commands))}</td><td class="n">{count(num(c?.rejections))}</td><td class="n">{num(c?.faults) > 0 ? <Badge kind="bad">{count(num(c?.faults))}</Badge> : 0}</td><td class="n">{c?.p99 && num(c.commands) > 0 ? `${(parseFloat(c.p99) * 1000).toFixed(1)} ms` : "–"}</td></tr>
          ))}</tbody>
        </table></Wide>
      )}
      {num(r.missingNodeCount) > 0 && <p class="warning">{r.missingNodeCount} nodes did not report their counts.</p>}
      {(r.remainingEntityIds ?? []).length > 0 && <p>The older module fails on these; they remain with the newer one: {r.remainingEntityIds!.map((id) => <a key={id} href={router.path("entities", type, id)}>{id} </a>)}</p>}
      <p class="bar">
        {r.state === "STATE_RUNNING" && act("Pause", "--pause", "ACTION_PAUSE", `Pause the rollout of ${type}`, "It takes no further steps. The new module continues to serve its entities.")}
        {r.state === "STATE_PAUSED" && act("Resume", "--resume", "ACTION_RESUME", `Resume the rollout of ${type}`, "It continues with its steps.")}
        {going && act("Promote", "--promote", "ACTION_PROMOTE", `Promote the new module of ${type}`, "The new module then serves all entities.")}
        {r.state === "STATE_VERIFYING" && act("Abort", "--abort", "ACTION_ABORT", `Abort the verification for ${type}`, "The new module is not activated. The old module continues to serve.", true)}
        {r.state !== "STATE_ABORTED" && r.state !== "STATE_VERIFYING" && r.state !== "STATE_REJECTED" && act("Abort", "--abort", "ACTION_ABORT", `Abort the rollout of ${type}`, "Its entities return to the old module, except entities on which the old module fails.", true)}
      </p>
    </Panel>
  );
}
