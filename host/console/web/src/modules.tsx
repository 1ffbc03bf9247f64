// Modules, and the active module of each entity type.
import { useState } from "preact/hooks";
import { call, lineOf, num, stream, textOf } from "./api.ts";
import { sleep, useOneTab, useRead, type Loaded } from "./live.ts";
import { partText, RolloutPanel, type Part } from "./rollout.tsx";
import { router } from "./router.ts";
import { Ask, AsCommand, Badge, bytesText, Digest, Empty, Fault, Panel, Taken, TypeTabs, When, Wide } from "./ui.tsx";

export interface Module {
  digest: string; name?: string; version?: string; sizeBytes?: string; uploadedAt?: string; entityTypes?: string[]; activeFor?: string[]; parts?: Part[];
  signedBy?: string; signatureFault?: string; unusedSince?: string; activations?: { entityType: string; revision: string; forcedBy?: string; owner?: string }[];
  verifications?: { entityType: string; verifiedAt?: string; all?: boolean; entities?: string; differences?: string; faults?: string; revision?: string }[];
}

export interface Type { type: string; module: Module }

/** The stored modules, newest first. */
function useModules(): Loaded<{ modules?: Module[] }> {
  return useRead("module.ListModules", {}, 10_000, "modules");
}

/** The entity types with an active module, sorted by name. */
export function useTypes(): { data?: Type[]; error?: string; reload(): void } {
  const read = useModules();
  const { data, ...rest } = read;
  if (!data) return rest;
  const types = (data.modules ?? []).flatMap((m) => (m.activeFor ?? []).map((type) => ({ type, module: m })));
  return { ...rest, data: types.sort((a, b) => (a.type < b.type ? -1 : 1)) };
}

export function ModulesView({ type }: { type: string | undefined }) {
  const { data, error, reload } = useModules();
  const modules = data?.modules ?? [];
  const types = [...new Set(modules.flatMap((m) => m.activeFor ?? []))].sort();
  // Another module can be activated only after a rollout is promoted or aborted.
  const rolling = new Set(modules.flatMap((m) => m.parts ?? []).filter((p) => p.kind === "KIND_ROLLOUT" || p.state === "STATE_VERIFYING").map((p) => p.entityType));
  return (
    <>
      <Panel title="Modules" aside={<AsCommand line={lineOf("module", "ls")} method="module.ListModules" request={{}} />}>
        <Fault text={error} />
        {data && modules.length === 0 && <Empty>No module is uploaded yet: <code>{lineOf("module", "push", "FILE.wasm")}</code></Empty>}
        {modules.length > 0 && (
          <Wide name="Table of modules">
            <table>
              <thead><tr><th>Module</th><th>Digest</th><th>Serves</th><th class="n">Size</th><th>Uploaded</th><th>Verified</th><th><span class="unseen">Actions</span></th></tr></thead>
              <tbody>{modules.map((m) => (
                <tr key={m.digest}>
                  <td>{m.name || "–"} <span class="quiet">{m.version}</span></td>
                  <td><Digest of={m.digest} /></td>
                  <td>{(m.activeFor ?? []).map((t) => <a key={t} href={router.path("modules", t)}><Badge kind="good">{t}</Badge></a>)}{(m.parts ?? []).map((p) => <a key={p.entityType + p.kind} data-part={p.kind} href={router.path("modules", p.entityType)}><Badge kind="warn">{p.entityType}: {partText(p)}</Badge></a>)}{(m.activeFor ?? []).length + (m.parts ?? []).length === 0 && <span class="quiet">nothing</span>}</td>
                  <td class="n">{bytesText(num(m.sizeBytes))}</td>
                  <td><When at={m.uploadedAt} /></td>
                  <td>{(m.verifications ?? []).map((v) => <Badge key={v.entityType} kind={num(v.faults) > 0 ? "bad" : num(v.differences) > 0 ? "warn" : "good"}>{v.all ? "all" : "sample"} of {v.entityType}: {num(v.faults)} faults, {num(v.differences)} differ</Badge>)}</td>
                  <td class="n">{(m.entityTypes ?? []).filter((t) => !m.activeFor?.includes(t) && !rolling.has(t)).map((t) => {
                    const request = { entityType: t, digest: m.digest };
                    return <Ask key={t} label={`Activate for ${t}`} title={`Activate ${m.digest.slice(0, 12)} for ${t}`} text="All nodes then serve the type with this module. A module that is incompatible with stored data is rejected. If entities have truncated histories, the cluster compares the module with them first." line={lineOf("module", "activate", t, m.digest)} needs={{ verb: "deploy", entityType: t }} method="module.ActivateModule" request={request} run={async () => (await call("module.ActivateModule", request, false), reload())} />;
                  })}</td>
                </tr>
              ))}</tbody>
            </table>
          </Wide>
        )}
      </Panel>
      {types.length > 0 && <TypeTabs types={types} chosen={type} to={(t) => router.path("modules", t)} />}
      {type && <RolloutPanel key={`rollout ${type}`} type={type} changed={reload} />}
      {type && <History key={type} type={type} changed={reload} />}
      {type && <Manifest type={type} />}
    </>
  );
}

const kinds: Record<string, string> = { KIND_ACTIVATE: "activated", KIND_LIMITS: "limits changed", KIND_ROLLBACK: "rolled back", KIND_CANARY: "activated for a part", KIND_PROMOTE: "promoted to all", KIND_ABORT: "aborted" };

function History({ type, changed }: { type: string; changed: () => void }) {
  const request = { entityType: type };
  const { data, error, reload } = useRead("module.GetActivationHistory", request);
  const changes: any[] = data?.changes ?? [];
  const back = { entityType: type, revision: changes[0]?.revision };
  return (
    <Panel title={`Module history of ${type}`} aside={<AsCommand line={lineOf("module", "history", type)} method="module.GetActivationHistory" request={request} />}>
      <Fault text={error} />
      {changes.length > 0 && (
        <Wide name="Table of changes"><table>
          <thead><tr><th class="n">Revision</th><th>When</th><th>What</th><th>Digest</th><th>By</th></tr></thead>
          <tbody>{changes.map((c) => (
            <tr key={c.revision}>
              <td class="n">{c.revision}</td><td><When at={c.changedAt} /></td>
              <td>{kinds[c.kind] ?? c.kind} {c.forced && <Badge kind="warn">forced</Badge>}{num(c.rolledBackRevision) > 0 && <span class="quiet"> of {c.rolledBackRevision}</span>}</td>
              <td><Digest of={c.digest} /></td><td>{c.changedBy || <span class="quiet">unknown</span>}</td>
            </tr>
          ))}</tbody>
        </table></Wide>
      )}
      {changes.length > 1 && (
        <p class="bar"><Ask danger needs={{ verb: "deploy", entityType: type }} label="Roll back" title={`Roll ${type} back`} text="The previous module serves the type again, after it has replayed every entity that this module wrote. If it fails on one of them, nothing changes." line={lineOf("module", "rollback", type)} method="module.RollbackModule" request={back} run={async () => {
          await call("module.RollbackModule", back, false);
          reload();
          changed();
        }} /></p>
      )}
    </Panel>
  );
}

function Manifest({ type }: { type: string }) {
  const { data, error } = useRead("module.GetModule", { entityType: type });
  return (
    <Panel title="Manifest">
      <Fault text={error} />
      {data && <pre class="tall" tabIndex={0}>{JSON.stringify(data.manifest, null, 2)}</pre>}
    </Panel>
  );
}

interface Line { writtenAt: string; entityId?: string; level: string; text: string; moduleDigest?: string; node: string }

const most = 300;

/** Merges the lines of all nodes by time. The lines of one node keep their order. */
function inOrder(was: Line[], more: Line[]): Line[] {
  const at = (l: Line) => Date.parse(l.writtenAt);
  return [...was, ...more].sort((a, b) => at(a) - at(b)); // a stable sort
}

/** The log lines of guests, live. */
export function LogsView({ type: given }: { type: string | undefined }) {
  const types = useTypes();
  const type = given ?? types.data?.[0]?.type;
  return (
    <>
      <TypeTabs types={types.data?.map((t) => t.type) ?? []} chosen={type} to={(t) => router.path("logs", t)} />
      <Fault text={types.error} />
      {type && <Lines key={type} type={type} />}
    </>
  );
}

function Lines({ type }: { type: string }) {
  const [lines, setLines] = useState<Line[]>([]);
  const [state, setState] = useState({ error: "", lost: 0, missing: [] as string[] });
  const [held, setHeld] = useState(false);
  const request = { entityType: type, follow: true };
  const { taken, take } = useOneTab(async (signal) => {
    if (held) return;
    setLines([]);
    let shown: Line[] = [];
    for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, 8_000)) {
      shown = [];
      try {
        for await (const m of stream("cluster.TailLogs", request, signal)) {
          pause = 500;
          setState((s) => ({ error: "", lost: s.lost + num(m.lost), missing: m.missingNodes ?? s.missing }));
          shown = inOrder(shown, (m.lines ?? []).map((l: any) => ({ ...l, node: m.nodeId }))).slice(-most);
          setLines(shown);
        }
      } catch (e) {
        if (!signal.aborted) setState((s) => ({ ...s, error: textOf(e) }));
      }
      await sleep(pause, signal);
    }
  }, `${type} ${held}`);
  return (
    <Panel title={`Logs of ${type}`} aside={<><button type="button" class="small" onClick={() => setHeld(!held)}>{held ? "Resume" : "Pause"}</button><AsCommand line={lineOf("logs", type, ["--follow"])} method="cluster.TailLogs" request={request} /></>}>
      <Fault text={state.error} />
      {taken && <Taken take={take} />}
      {state.missing.length > 0 && <p class="warning">Without {state.missing.join(", ")}: no answer.</p>}
      {state.lost > 0 && <p class="warning">{state.lost} lines were written faster than they are kept.</p>}
      {lines.length === 0 && <Empty>No lines yet. This shows what guests print and log, and why their calls fail.</Empty>}
      <ol class="log" aria-live="off">{[...lines].reverse().map((l, i) => <li key={lines.length - i} class={l.level}><When at={l.writtenAt} /> <span class="quiet">{l.node}</span> <Badge kind={l.level === "fault" || l.level === "error" ? "bad" : l.level === "warn" ? "warn" : ""}>{l.level}</Badge> {l.entityId && <a href={router.path("entities", type, l.entityId)}>{l.entityId}</a>} <span class="text">{l.text}</span></li>)}</ol>
    </Panel>
  );
}
