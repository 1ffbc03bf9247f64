// The cluster: its nodes, and the replicas and leader of each shard.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, lineOf, num, secondsOf, textOf, token } from "./api.ts";
import { sleep, useShared, whileLooking } from "./live.ts";
import { Ask, AsCommand, Badge, bytesText, count, Empty, Fact, Fault, Panel, Wide } from "./ui.tsx";

export interface Member {
  nodeId: string; address: string; status: string; reachable?: boolean; roles?: string[]; leaderCount?: number; replicaCount?: number;
  version?: string; zone?: string; draining?: boolean; clockSkew?: string; impairment?: { slow?: boolean; until?: string; damageCount?: number; diskFull?: boolean };
}

export interface Cluster {
  members?: Member[]; coordinator?: string; quorum?: boolean; nodeId: string; shardCount: number; clusterVersion?: number; clusterId?: string;
}

export interface Shard {
  shardId?: number; leader?: string; term?: string; voters?: string[]; learners?: string[]; entityCount?: string; bytes?: string; stopped?: { nodeId?: string }[];
}

/** The last known state of the cluster, for all views. */
export const cluster = signal<Cluster | undefined>(undefined);
const shards = signal<Shard[]>([]);
const lost = signal("");
const lostShards = signal("");

/** Keeps the cluster up to date while the page is visible: every second if closely is set, otherwise every 10 seconds. */
export function useCluster(closely: boolean): void {
  useEffect(() => whileLooking(async (signal) => {
    while (!signal.aborted) {
      try {
        const c = await call<Cluster>("cluster.GetCluster", {}, true, signal);
        cluster.value = { ...c, quorum: c.quorum ?? false, members: c.members ?? [] };
        lost.value = "";
      } catch (e) {
        if (!signal.aborted) lost.value = textOf(e);
      }
      await sleep(closely ? 1_000 : 10_000, signal);
    }
  }), [token.value, closely]);
}

interface Shards { shards?: Shard[]; changes?: boolean }

/** Adds a message to the known shards. It has the changed shards, or shards for which the first message had no room. */
function folded(was: Shards | undefined, m: Shards): Shards {
  if (!m.changes || !was) return m;
  const all = new Map([...(was.shards ?? []), ...(m.shards ?? [])].map((s) => [s.shardId ?? 0, s]));
  return { shards: [...all.values()].sort((a, b) => (a.shardId ?? 0) - (b.shardId ?? 0)) };
}

/** Keeps the shards up to date. */
function useShards(): void {
  useShared<Shards>("cluster.WatchShards", (now) => {
    shards.value = now.shards ?? [];
    lostShards.value = "";
  }, folded, (why) => (lostShards.value = why));
}

export function ClusterView() {
  useShards();
  const c = cluster.value;
  if (!c) return <Panel title="Cluster"><Fault text={lost.value} />{!lost.value && <Empty>Loading…</Empty>}</Panel>;
  const data = shards.value.filter((s) => (s.shardId ?? 0) > 0);
  const unled = data.filter((s) => !s.leader).length;
  return (
    <>
      <Panel title="Cluster" aside={<AsCommand line={lineOf("node", "ls")} method="cluster.GetCluster" request={{}} />}>
        <Fault text={lost.value || lostShards.value} />
        <dl class="facts">
          <Fact name="Nodes">{count(c.members?.length ?? 0)}</Fact>
          <Fact name="Quorum">{c.quorum ? <Badge kind="good">yes</Badge> : <Badge kind="bad">no</Badge>}</Fact>
          <Fact name="Coordinator">{c.coordinator || "none"}</Fact>
          <Fact name="Shards">{count(c.shardCount)}{unled > 0 && <> <Badge kind="bad">{unled} without a leader</Badge></>}</Fact>
          <Fact name="Entities">{count(data.reduce((sum, s) => sum + num(s.entityCount), 0))}</Fact>
          <Fact name="Cluster version">{c.clusterVersion ?? 0}</Fact>
          <Fact name="Answered by">{c.nodeId}</Fact>
        </dl>
      </Panel>
      <div class="nodes">
        {(c.members ?? []).map((m) => <Node key={m.nodeId} member={m} coordinator={m.nodeId === c.coordinator} shards={data} />)}
      </div>
      <ShardTable shards={data} members={c.members ?? []} />
    </>
  );
}

function Node({ member: m, coordinator, shards }: { member: Member; coordinator: boolean; shards: Shard[] }) {
  const gone = !m.reachable || m.status === "down";
  const led = shards.filter((s) => s.leader === m.nodeId).length;
  const held = shards.filter((s) => s.voters?.includes(m.nodeId) || s.learners?.includes(m.nodeId));
  const stopped = shards.filter((s) => s.stopped?.some((r) => r.nodeId === m.nodeId)).length;
  const skew = secondsOf(m.clockSkew) * 1e3;
  return (
    <section class={`panel node ${gone ? "gone" : ""}`} aria-label={`Node ${m.nodeId}`} data-node={m.nodeId} data-led={led} data-reachable={String(!gone)}>
      <header>
        <h2>{m.nodeId}</h2>
        <div class="aside">
          {coordinator && <Badge kind="accent">coordinator</Badge>}
          {m.draining && <Badge kind="warn">draining</Badge>}
          <Badge kind={gone ? "bad" : m.status === "up" ? "good" : "warn"}>{m.reachable ? m.status : "unreachable"}</Badge>
        </div>
      </header>
      <dl class="facts tight">
        <Fact name="Address">{m.address}</Fact>
        <Fact name="Release">{m.version || "–"}</Fact>
        {m.zone && <Fact name="Zone">{m.zone}</Fact>}
        <Fact name="Leads">{count(led)}</Fact>
        <Fact name="Holds">{count(held.length)}</Fact>
        {stopped > 0 && <Fact name="Stopped"><Badge kind="bad">{stopped}</Badge></Fact>}
        {skew !== 0 && <Fact name="Clock"><Badge kind={Math.abs(skew) >= 1000 ? "bad" : "warn"}>{skew > 0 ? "+" : ""}{skew} ms</Badge></Fact>}
      </dl>
      {m.impairment && <p class="warning">It gets no leaderships for now: {m.impairment.damageCount ? "its replicas were damaged again after they were rebuilt." : m.impairment.slow ? "its disk or its raft loop is slow." : m.impairment.diskFull ? "its disk is full." : "it was unreachable recently."}</p>}
      <ShardMap node={m.nodeId} shards={held} gone={gone} />
      <footer>
        {m.draining
          ? <Ask label="Resume" title={`Resume ${m.nodeId}`} text="The node can get shards again." line={lineOf("node", "resume", m.nodeId)} needs={{ verb: "admin" }} method="cluster.ResumeNode" request={{ nodeId: m.nodeId }} run={() => call("cluster.ResumeNode", { nodeId: m.nodeId }, false)} />
          : <Ask label="Drain" title={`Drain ${m.nodeId}`} text="The node transfers its leaderships to other nodes. It keeps its replicas." line={lineOf("node", "drain", m.nodeId)} needs={{ verb: "admin" }} method="cluster.DrainNode" request={{ nodeId: m.nodeId }} run={() => call("cluster.DrainNode", { nodeId: m.nodeId }, false)} />}
      </footer>
    </section>
  );
}

/** The shards of a node on a canvas, which is one element for any number of shards. */
function ShardMap({ node, shards, gone }: { node: string; shards: Shard[]; gone: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hint, setHint] = useState("");
  const cell = shards.length > 600 ? 7 : 11;
  const columns = Math.max(1, Math.floor(width / cell));
  const height = Math.max(1, Math.ceil(shards.length / columns)) * cell;
  useEffect(() => {
    const seen = new ResizeObserver(([e]) => setWidth(Math.floor(e!.contentRect.width)));
    seen.observe(canvas.current!.parentElement!);
    return () => seen.disconnect();
  }, []);
  useEffect(() => {
    const c = canvas.current!;
    const scale = devicePixelRatio;
    c.width = width * scale;
    c.height = height * scale;
    const g = c.getContext("2d");
    if (!g) return;
    g.scale(scale, scale);
    const style = getComputedStyle(c);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const most = Math.max(1, ...shards.map((s) => num(s.entityCount)));
    shards.forEach((s, i) => {
      const x = (i % columns) * cell;
      const y = Math.floor(i / columns) * cell;
      const leads = s.leader === node && !gone;
      const bad = s.stopped?.some((r) => r.nodeId === node);
      g.globalAlpha = leads && !bad ? 0.45 + 0.55 * (num(s.entityCount) / most) : 1;
      g.fillStyle = bad ? colour("--bad") : leads ? colour("--accent") : colour("--cell");
      if (s.learners?.includes(node)) g.fillStyle = colour("--warn");
      g.fillRect(x, y, cell - 2, cell - 2);
      g.globalAlpha = 1;
    });
  });
  const find = (e: MouseEvent) => {
    const i = Math.floor(e.offsetY / cell) * columns + Math.floor(e.offsetX / cell);
    const s = shards[i];
    setHint(s ? `shard ${s.shardId}: led by ${s.leader || "nobody"}, ${count(num(s.entityCount))} entities` : "");
  };
  return (
    <div class="map">
      <canvas ref={canvas} style={{ width: `${width}px`, height: `${height}px` }} role="img" aria-label={`${shards.filter((s) => s.leader === node).length} of ${shards.length} shards are led by ${node}`} onMouseMove={find} onMouseLeave={() => setHint("")} />
      <p class="quiet hint">{hint || <><i class="leads" /> leads <i class="follows" /> follows <i class="learns" /> learns <i class="stopped" /> stopped</>}</p>
    </div>
  );
}

function ShardTable({ shards, members }: { shards: Shard[]; members: Member[] }) {
  const [from, setFrom] = useState(0);
  const page = 32;
  const shown = shards.slice(from, from + page);
  return (
    <Panel title="Shards" aside={<AsCommand line={lineOf("shard", "ls")} method="cluster.ListShards" request={{}} />}>
      <Wide name="Table of shards">
        <table>
          <thead><tr><th>Shard</th><th>Leader</th><th class="n">Term</th><th>Voters</th><th class="n">Entities</th><th class="n">Journal</th><th><span class="unseen">Actions</span></th></tr></thead>
          <tbody>
            {shown.map((s) => (
              <tr key={s.shardId}>
                <td>{s.shardId}</td>
                <td>{s.leader || <Badge kind="bad">none</Badge>}</td>
                <td class="n">{s.term ?? 0}</td>
                <td>{(s.voters ?? []).join(", ")}{s.learners?.length ? <span class="quiet"> + {s.learners.join(", ")}</span> : null}</td>
                <td class="n">{count(num(s.entityCount))}</td>
                <td class="n">{bytesText(num(s.bytes))}</td>
                <td class="n"><Move shard={s} members={members} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      <Pager from={from} page={page} of={shards.length} go={setFrom} />
    </Panel>
  );
}

function Move({ shard: s, members }: { shard: Shard; members: Member[] }) {
  const others = members.filter((m) => m.reachable && m.nodeId !== s.leader && s.voters?.includes(m.nodeId));
  const to = others[0]?.nodeId;
  if (!to) return null;
  const request = { shardId: s.shardId, toNode: to };
  return <Ask label={`To ${to}`} title={`Move shard ${s.shardId} to ${to}`} text="The leadership of the shard is transferred. Its commands wait for some milliseconds." line={lineOf("shard", "move", s.shardId!, to)} needs={{ verb: "admin" }} method="cluster.MoveShard" request={request} run={() => call("cluster.MoveShard", request, false)} />;
}

export function Pager({ from, page, of, go }: { from: number; page: number; of: number; go: (n: number) => void }) {
  if (of <= page) return null;
  return (
    <nav class="pager" aria-label="Pages">
      <button type="button" disabled={from === 0} onClick={() => go(Math.max(0, from - page))}>Previous</button>
      <span>{from + 1}–{Math.min(of, from + page)} of {count(of)}</span>
      <button type="button" disabled={from + page >= of} onClick={() => go(from + page)}>Next</button>
    </nav>
  );
}
