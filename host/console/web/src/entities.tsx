// Entities of a type, page by page.
import { useState } from "preact/hooks";
import { call, entityPath, lineOf, num, textOf } from "./api.ts";
import { useRead } from "./live.ts";
import { useTypes } from "./modules.tsx";
import { query, router } from "./router.ts";
import { Act, AsCommand, Badge, count, Empty, Fault, Panel, rate, span, TypeTabs, When, Wide } from "./ui.tsx";

interface Row { entityId: string; sequence?: string; status: string; resident?: boolean }

const pageSize = 100;
const statuses = ["", "active", "resident", "passivated", "quarantined", "deleted"];

export function statusKind(status: string): string {
  return status === "quarantined" ? "bad" : status === "active" ? "good" : "";
}

export function EntitiesView({ type: given }: { type: string | undefined }) {
  const types = useTypes();
  const type = given ?? types.data?.[0]?.type;
  return (
    <>
      <TypeTabs types={types.data?.map((t) => t.type) ?? []} chosen={type} to={(t) => router.path("entities", t)} />
      <Fault text={types.error} />
      {types.data && types.data.length === 0 && <Panel title="Entities"><Empty>No module serves an entity type yet. Upload one: <code>{lineOf("module", "push", "FILE.wasm")}</code></Empty></Panel>}
      {type && <List key={type} type={type} />}
    </>
  );
}

function List({ type }: { type: string }) {
  const prefix = query.value.get("prefix") ?? "";
  const status = query.value.get("status") ?? "";
  const [pages, setPages] = useState<string[]>([""]);
  const [open, setOpen] = useState("");
  const request = { entityType: type, idPrefix: prefix, status, pageSize, pageToken: pages[pages.length - 1] };
  const { data, error, reload } = useRead<{ entities?: Row[]; nextPageToken?: string }>("entity.ListEntities", request);
  const rows = data?.entities ?? [];
  const filter = (values: Record<string, string>) => {
    setPages([""]);
    router.set(values);
  };
  return (
    <Panel title={`Entities of ${type}`} aside={<AsCommand line={lineOf("entity", "ls", type, ...(prefix ? [["--prefix", prefix]] : []), ...(status ? [["--status", status]] : []))} method="entity.ListEntities" request={request} />}>
      <form class="bar" onSubmit={(e) => {
        e.preventDefault();
        if (open) router.go(entityPath(type, open));
      }}>
        <label>Prefix <input value={prefix} onChange={(e) => filter({ prefix: e.currentTarget.value })} spellcheck={false} /></label>
        <label>Status <select value={status} onChange={(e) => filter({ status: e.currentTarget.value })}>{statuses.map((s) => <option key={s} value={s}>{s || "not deleted"}</option>)}</select></label>
        <button type="button" onClick={reload}>Refresh</button>
        <label class="right">Open by id <input value={open} onInput={(e) => setOpen(e.currentTarget.value)} spellcheck={false} name="open" /></label>
        <button type="submit" disabled={!open}>Open</button>
      </form>
      <Fault text={error} />
      {data && rows.length === 0 && <Empty>No entity matches.</Empty>}
      {rows.length > 0 && (
        <Wide name="Table of entities"><table>
          <thead><tr><th>Id</th><th class="n">Sequence</th><th>Status</th><th>In memory</th></tr></thead>
          <tbody>{rows.map((r) => (
            <tr key={r.entityId}>
              <td class="id"><a href={entityPath(type, r.entityId)}>{r.entityId}</a></td>
              <td class="n">{count(num(r.sequence))}</td>
              <td><Badge kind={statusKind(r.status)}>{r.status}</Badge></td>
              <td>{r.resident ? "yes" : <span class="quiet">no</span>}</td>
            </tr>
          ))}</tbody>
        </table></Wide>
      )}
      <nav class="pager" aria-label="Pages">
        <button type="button" disabled={pages.length === 1} onClick={() => setPages(pages.slice(0, -1))}>Previous</button>
        <span>page {pages.length}</span>
        <button type="button" disabled={!data?.nextPageToken} onClick={() => setPages([...pages, data!.nextPageToken!])}>Next</button>
      </nav>
    </Panel>
  );
}

/** The entities with the most requests, and the cost of their types. */
export function HotView() {
  const request = { limit: 50 };
  const { data, error } = useRead("entity.ListHotEntities", request, 2_000);
  const rows: any[] = data?.entities ?? [];
  const types = new Map<string, { commands: number; fuel: number; n: number }>();
  for (const r of rows) {
    const t = types.get(r.entityType) ?? { commands: 0, fuel: 0, n: 0 };
    types.set(r.entityType, { commands: t.commands + (r.commandsPerSecond ?? 0), fuel: t.fuel + (r.fuelPerSecond ?? 0), n: t.n + 1 });
  }
  const most = Math.max(1, ...rows.map((r) => r.commandsPerSecond ?? 0));
  return (
    <Panel title="Hot entities" aside={<AsCommand line={lineOf("entity", "hot")} method="entity.ListHotEntities" request={request} />}>
      <Fault text={error} />
      {data?.missingNodes?.length > 0 && <p class="warning">Without {data.missingNodes.join(", ")}: no answer.</p>}
      <p class="quiet">Estimates over the last 10 to 20 seconds: one in eight commands is counted.</p>
      {types.size > 0 && <dl class="facts">{[...types].map(([t, v]) => <div class="fact" key={t}><dt>{t}, {v.n} of them</dt><dd>{rate(v.commands)} commands/s, {rate(v.fuel)} fuel/s</dd></div>)}</dl>}
      {data && rows.length === 0 && <Empty>No entity has many requests.</Empty>}
      {rows.length > 0 && (
        <Wide name="Table of hot entities">
          <table>
            <thead><tr><th>Entity</th><th>Node</th><th class="n">Shard</th><th class="n">Commands/s</th><th class="n">Fuel/s</th><th class="n">Share of node</th></tr></thead>
            <tbody>{rows.map((r) => (
              <tr key={r.entityType + "/" + r.entityId}>
                <td class="id"><a href={entityPath(r.entityType, r.entityId)}>{r.entityType}/{r.entityId}</a></td>
                <td>{r.nodeId}</td>
                <td class="n">{r.shardId}</td>
                <td class="n"><meter min={0} max={most} value={r.commandsPerSecond ?? 0} aria-label="commands a second" /> {rate(r.commandsPerSecond ?? 0)}</td>
                <td class="n">{rate(r.fuelPerSecond ?? 0)}</td>
                <td class="n">{(100 * (r.fuelShare ?? 0)).toFixed(0)} %</td>
              </tr>
            ))}</tbody>
          </table>
        </Wide>
      )}
    </Panel>
  );
}

/** Messages that were rejected. */
export function LettersView() {
  const [pages, setPages] = useState<string[]>([""]);
  const [said, setSaid] = useState<Record<string, string>>({});
  const request = { pageSize, pageToken: pages[pages.length - 1] };
  const { data, error, reload } = useRead("entity.ListDeadLetters", request, 5_000);
  const letters: any[] = data?.letters ?? [];
  const act = async (id: string, method: "RetryDeadLetter" | "DiscardDeadLetter") => {
    try {
      await call(`entity.${method}`, { id }, false);
      setSaid((s) => ({ ...s, [id]: "" }));
    } catch (e) {
      setSaid((s) => ({ ...s, [id]: textOf(e) }));
    }
    reload();
  };
  return (
    <Panel title="Dead letters" aside={<AsCommand line={lineOf("entity", "deadletters", "ls")} method="entity.ListDeadLetters" request={request} />}>
      <p class="quiet">Messages between entities that were rejected. A retry delivers a message again, and keeps it if it is rejected again.</p>
      <Fault text={error} />
      {data && letters.length === 0 && <Empty>There are no dead letters.</Empty>}
      {letters.map((l) => (
        <article class="letter" key={l.id} data-letter={l.id}>
          <p><a href={entityPath(l.sourceType, l.sourceId)}>{l.sourceType}/{l.sourceId}</a> → <a href={entityPath(l.entityType, l.entityId)}>{l.entityType}/{l.entityId}</a> <strong>{l.command}</strong></p>
          <p><Badge kind="bad">{l.code}</Badge> {l.message}</p>
          <pre>{letterText(l.data)}</pre>
          <p class="bar">
            <Act needs={{ verb: "operate", entityType: l.entityType, entityId: l.entityId }} run={() => act(l.id, "RetryDeadLetter")}>Retry</Act>
            <Act danger needs={{ verb: "operate", entityType: l.entityType, entityId: l.entityId }} run={() => act(l.id, "DiscardDeadLetter")}>Discard</Act>
            <AsCommand line={lineOf("entity", "deadletters", "retry", l.id)} method="entity.RetryDeadLetter" request={{ id: l.id }} />
          </p>
          <Fault text={said[l.id]} />
        </article>
      ))}
      {(pages.length > 1 || data?.nextPageToken) && (
        <nav class="pager" aria-label="Pages">
          <button type="button" disabled={pages.length === 1} onClick={() => setPages(pages.slice(0, -1))}>Previous</button>
          <span>page {pages.length}</span>
          <button type="button" disabled={!data?.nextPageToken} onClick={() => setPages([...pages, data.nextPageToken])}>Next</button>
        </nav>
      )}
    </Panel>
  );
}

function letterText(data: string | undefined): string {
  if (!data) return "no payload";
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(data), (c) => c.charCodeAt(0)));
  } catch {
    return `base64: ${data}`;
  }
}

interface EntityTimer { entityType: string; entityId: string; shardId?: number; timer: { name: string; due: string; command?: string; schedule?: string; timeZone?: string } }

/** The next timers of all entities or of one type. */
export function TimersView({ type }: { type: string | undefined }) {
  const types = useTypes();
  const [pages, setPages] = useState<string[]>([""]);
  const request = { entityType: type ?? "", pageSize, pageToken: pages[pages.length - 1] };
  const first = pages.length === 1;
  const { data, error } = useRead<{ timers?: EntityTimer[]; nextPageToken?: string; missingNodes?: string[]; shardsRead?: number; shardCount?: number }>("entity.ListTimers", request, first ? 2_000 : 0);
  const timers = data?.timers ?? [];
  const now = Date.now();
  const unread = (data?.shardCount ?? 0) - (data?.shardsRead ?? 0);
  const late = timers.filter((t) => Date.parse(t.timer.due) < now).length;
  return (
    <>
      <TypeTabs types={["all", ...(types.data?.map((t) => t.type) ?? [])]} chosen={type ?? "all"} to={(t) => (t === "all" ? router.path("timers") : router.path("timers", t))} />
      <Fault text={types.error} />
      <Panel title={<>Timers {late > 0 && <Badge kind="warn">{late} late</Badge>}</>} aside={<AsCommand line={lineOf("entity", "timers", ...(type ? [type] : []))} method="entity.ListTimers" request={request} />}>
        <Fault text={error} />
        {data?.missingNodes?.length ? <p class="warning">Without {data.missingNodes.join(", ")}: no answer.</p> : null}
        {unread > 0 && <p class="warning">{unread} shards are not told of: no leader has answered for them.</p>}
        {data && timers.length === 0 && <Empty>No timer is set. Handlers set timers with a command and a time.</Empty>}
        {timers.length > 0 && (
          <Wide name="Table of timers"><table>
            <thead><tr><th>Due</th><th class="n">In</th><th>Entity</th><th>Timer</th><th>Command</th><th>Repeats</th></tr></thead>
            <tbody>{timers.map((t) => (
              <tr key={`${t.entityType}/${t.entityId} ${t.timer.name}`} data-timer={t.timer.name}>
                <td><When at={t.timer.due} /></td>
                <td class="n">{Date.parse(t.timer.due) < now ? <Badge kind="warn">late {span(now - Date.parse(t.timer.due))}</Badge> : span(Date.parse(t.timer.due) - now)}</td>
                <td class="id"><a href={entityPath(t.entityType, t.entityId)}>{t.entityType}/{t.entityId}</a></td>
                <td>{t.timer.name}</td>
                <td>{t.timer.command}</td>
                <td>{t.timer.schedule ? `${t.timer.schedule} ${t.timer.timeZone ?? ""}` : <span class="quiet">once</span>}</td>
              </tr>
            ))}</tbody>
          </table></Wide>
        )}
        <nav class="pager" aria-label="Pages of timers">
          <button type="button" disabled={first} onClick={() => setPages(pages.slice(0, -1))}>Previous</button>
          <button type="button" disabled={!data?.nextPageToken} onClick={() => setPages([...pages, data!.nextPageToken!])}>Next</button>
        </nav>
      </Panel>
    </>
  );
}
