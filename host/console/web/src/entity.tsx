// One entity: its properties, its history, and its commands and queries.
import { useEffect, useState } from "preact/hooks";
import { base64, call, HostdError, lineOf, newCommandId, num, once, Rejected, textOf } from "./api.ts";
import { statusKind } from "./entities.tsx";
import { brief, changes, exact, payload, pretty } from "./json.ts";
import { useRead } from "./live.ts";
import { router } from "./router.ts";
import { Form, hasForm, Json, resolve, valueOf, type Schema, type Values } from "./schema.tsx";
import { Act, Ask, AsCommand, Badge, bytesText, count, Digest, Empty, Fact, Fault, Panel, When, Wide } from "./ui.tsx";

interface Entity {
  status: string; sequence?: string; snapshotSequence?: string; shardId?: number; nodeId?: string; moduleDigest?: string; resident?: boolean; stateBytes?: string;
  timers?: { name: string; due: string; command: string; schedule?: string; timeZone?: string }[]; lastError?: string; faults?: number; fuel?: string; pendingMessages?: string;
  operatorActions?: { kind: string; timer?: string; recordedAt: string; sequence?: string }[]; quarantinedUntil?: string;
}

interface Event { sequence: string; eventType: string; json?: unknown; data?: string; tags?: string[] }
interface Source { kind: string; timer?: string; due?: string; entityType?: string; entityId?: string; number?: string; action?: string }
interface Message { entityType: string; entityId: string; command: string; data?: string; onReply?: string }
interface JournalRecord {
  sequence?: string; eventCount?: number; events?: Event[]; commandId?: string; recordedAt: string; moduleDigest?: string; principal?: { kind: string; name?: string }; fuel?: string; source?: Source;
  json?: unknown; data?: string; messages?: Message[]; timers?: { timer: { name: string; due?: string; command?: string; schedule?: string }; cancelled?: boolean }[];
  rejection?: { code: string; message?: string; command?: string }; deleted?: boolean; truncated?: boolean;
}

export function EntityView({ type, id }: { type: string; id: string }) {
  const name = { entityType: type, entityId: id };
  const read = useRead<Entity>("entity.GetEntity", name, 2_000);
  const e = read.data;
  const last = num(e?.sequence);
  return (
    <>
      <Panel title={<><a href={router.path("entities", type)}>{type}</a> / <span class="id">{id}</span></>} aside={<AsCommand line={lineOf("entity", "get", type, id)} method="entity.GetEntity" request={name} />}>
        <Fault text={read.error} />
        {e && (
          <>
            <dl class="facts">
              <Fact name="Status"><Badge kind={statusKind(e.status)}>{e.status}</Badge></Fact>
              <Fact name="Sequence"><span data-sequence={last}>{count(last)}</span></Fact>
              <Fact name="Snapshot at">{num(e.snapshotSequence) || <span class="quiet">none</span>}</Fact>
              <Fact name="Shard">{e.shardId}</Fact>
              <Fact name="Node">{e.nodeId || "none"}</Fact>
              <Fact name="Module"><Digest of={e.moduleDigest} /></Fact>
              <Fact name="In memory">{e.resident ? "yes" : "no"}</Fact>
              <Fact name="State">{num(e.stateBytes) ? bytesText(num(e.stateBytes)) : <span class="quiet">unknown</span>}</Fact>
              <Fact name="Fuel used">{count(num(e.fuel))}</Fact>
              <Fact name="Undelivered messages">{num(e.pendingMessages)}</Fact>
            </dl>
            {e.lastError && (
              <div class="faults">
                <p><Badge kind="bad">{e.faults ?? 0} faults in a row</Badge> {e.quarantinedUntil && <>quarantined until <When at={e.quarantinedUntil} /></>}</p>
                <pre>{e.lastError}</pre>
                <Act needs={{ verb: "operate", ...name }} run={async () => (await call("entity.ClearFaults", name, false), read.reload())}>Clear faults</Act>
              </div>
            )}
            {(e.timers ?? []).length > 0 && (
              <Wide name="Table of timers"><table>
                <caption>Timers</caption>
                <thead><tr><th>Name</th><th>Due</th><th>Command</th><th>Repeats</th><th><span class="unseen">Actions</span></th></tr></thead>
                <tbody>{e.timers!.map((t) => {
                  const request = { ...name, timer: t.name, commandId: newCommandId() };
                  return <tr key={t.name}><td>{t.name}</td><td><When at={t.due} /></td><td>{t.command}</td><td>{t.schedule ? `${t.schedule} ${t.timeZone ?? ""}` : "once"}</td><td class="n"><Ask danger needs={{ verb: "operate", ...name }} label="Skip" title={`Skip the timer ${t.name}`} text="The timer is cancelled, and its command does not run." line={lineOf("entity", "skip-timer", type, id, t.name)} method="entity.SkipTimer" request={request} run={async () => (await once("entity.SkipTimer", request), read.reload())} /></td></tr>;
                })}</tbody>
              </table></Wide>
            )}
            {(e.operatorActions ?? []).map((a) => <p key={a.sequence} class="quiet">{a.kind === "delete" ? "deleted" : `timer ${a.timer} skipped`} by a person at <When at={a.recordedAt} />, sequence {a.sequence}</p>)}
          </>
        )}
      </Panel>
      {e && num(e.pendingMessages) > 0 && <Messages name={name} many={num(e.pendingMessages)} />}
      {e && last > 0 && <States name={name} last={last} />}
      {e && <Asking name={name} done={read.reload} />}
      {e && last > 0 && <Timeline name={name} last={last} />}
    </>
  );
}

interface Name { entityType: string; entityId: string }

/** The messages of the entity that have not been delivered. */
function Messages({ name, many }: { name: Name; many: number }) {
  const request = { ...name, pageSize: 50 };
  const { data, error } = useRead<{ messages?: { entityType: string; entityId: string; number: string; command: string; data?: string; sentAt: string }[]; nextPageToken?: string }>("entity.ListMessages", request, 2_000);
  const messages = data?.messages ?? [];
  return (
    <Panel title={<>Undelivered messages <Badge kind="accent">{count(many)}</Badge></>} label="Undelivered messages" aside={<AsCommand line={lineOf("entity", "messages", name.entityType, name.entityId)} method="entity.ListMessages" request={request} />}>
      <Fault text={error} />
      <Wide name="Table of messages"><table>
        <thead><tr><th>To</th><th>Command</th><th class="n">Number</th><th>Sent</th><th>Content</th></tr></thead>
        <tbody>{messages.map((m) => (
          <tr key={`${m.entityType}/${m.entityId} ${m.number}`} data-message={m.number}>
            <td class="id"><a href={router.path("entities", m.entityType, m.entityId)}>{m.entityType}/{m.entityId}</a></td>
            <td>{m.command}</td><td class="n">{m.number}</td><td><When at={m.sentAt} /></td><td class="content">{brief(payload(m), 160)}</td>
          </tr>
        ))}</tbody>
      </table></Wide>
      {data?.nextPageToken && <p class="quiet">Only the oldest are shown.</p>}
    </Panel>
  );
}

/** The state at any sequence, and the changes that its event made. */
function States({ name, last }: { name: Name; last: number }) {
  const [chosen, choose] = useState<number | undefined>(undefined);
  const [asked, ask] = useState<number | undefined>(undefined);
  const at = chosen ?? last;
  useEffect(() => {
    const timer = setTimeout(() => ask(chosen), 120);
    return () => clearTimeout(timer);
  }, [chosen]);
  const request = { ...name, ...(asked === undefined ? {} : { atSequence: asked }) };
  const now = useRead("entity.GetState", { ...request, ...(asked === undefined ? { atSequence: last } : {}) });
  const before = useRead("entity.GetState", at > 1 ? { ...name, atSequence: (asked ?? last) - 1 } : undefined);
  const state = payload(now.data);
  const old = at > 1 ? payload(before.data) : undefined;
  const differ = now.data && (before.data || at <= 1) ? changes(old ?? {}, state) : [];
  return (
    <Panel title="State" label="State" aside={<AsCommand line={lineOf("entity", "state", name.entityType, name.entityId, ...(asked === undefined ? [] : [["--at", asked]]))} method="entity.GetState" request={request} />}>
      <div class="bar">
        <label class="grow">At sequence <input type="range" min={1} max={last} value={at} onInput={(e) => choose(Number(e.currentTarget.value))} aria-label="Sequence" /></label>
        <input type="number" min={1} max={last} value={at} onChange={(e) => choose(Math.min(last, Math.max(1, Math.floor(Number(e.currentTarget.value)) || 1)))} aria-label="Sequence, as a number" name="at" />
        <button type="button" disabled={chosen === undefined} onClick={() => choose(undefined)}>Newest</button>
      </div>
      <Fault text={now.error} />
      <div class="halves">
        <div>
          <h3>State {now.data && <span class="quiet">by <Digest of={now.data.moduleDigest} /></span>}</h3>
          <pre class="tall" tabIndex={0} data-state={num(now.data?.sequence)}>{now.data ? pretty(state) : "…"}</pre>
        </div>
        <div>
          <h3>Changed by event {at}</h3>
          <Fault text={before.error} />
          {differ.length === 0 ? <Empty>Nothing.</Empty> : (
            <ul class="changes">{differ.map((c) => (
              <li key={c.path}><code>{c.path || "the whole state"}</code>{c.before !== undefined && <del>{brief(c.before, 300)}</del>}{c.after !== undefined && <ins>{brief(c.after, 300)}</ins>}</li>
            ))}</ul>
          )}
        </div>
      </div>
    </Panel>
  );
}

interface Named { name: string; schema?: Schema; description?: string }

/** The commands and queries that the type's module lists. */
function Asking({ name, done }: { name: Name; done: () => void }) {
  const { data, error } = useRead("module.GetModule", { entityType: name.entityType });
  const manifest = data?.manifest;
  const type = (manifest?.entityTypes ?? []).find((t: any) => t.name === name.entityType) ?? {};
  const commands: Named[] = type.commands ?? [];
  const queries: Named[] = type.queries ?? [];
  const [chosen, choose] = useState("");
  const options = [...commands.map((c) => ({ ...c, query: false })), ...queries.map((q) => ({ ...q, query: true }))];
  const of = options.find((o) => `${o.query ? "q" : "c"} ${o.name}` === chosen) ?? options[0];
  return (
    <Panel title="Commands and queries" label="Commands and queries">
      <Fault text={error} />
      {data && options.length === 0 && <FreeAsk name={name} done={done} />}
      {options.length > 0 && (
        <label>Command or query <select value={of ? `${of.query ? "q" : "c"} ${of.name}` : ""} onChange={(e) => choose(e.currentTarget.value)} name="ask">
          {commands.length > 0 && <optgroup label="Commands">{commands.map((c) => <option key={c.name} value={`c ${c.name}`}>{c.name}</option>)}</optgroup>}
          {queries.length > 0 && <optgroup label="Queries">{queries.map((q) => <option key={q.name} value={`q ${q.name}`}>{q.name}</option>)}</optgroup>}
        </select></label>
      )}
      {of && <Ask1 key={`${of.query} ${of.name}`} name={name} of={of} query={of.query} defs={manifest?.$defs ?? {}} encoding={type.encoding ?? "json"} done={done} />}
    </Panel>
  );
}

/** For modules that do not list their commands: any name can be sent. */
function FreeAsk({ name, done }: { name: Name; done: () => void }) {
  const [what, set] = useState("");
  const [query, setQuery] = useState(false);
  return (
    <>
      <p class="quiet">The module does not list its commands.</p>
      <div class="bar"><label>Name <input value={what} onInput={(e) => set(e.currentTarget.value)} spellcheck={false} /></label> <label><input type="checkbox" checked={query} onChange={(e) => setQuery(e.currentTarget.checked)} /> it is a query</label></div>
      {what && <Ask1 name={name} of={{ name: what }} query={query} defs={{}} encoding="json" done={done} />}
    </>
  );
}

function Ask1({ name, of, query, defs, encoding, done }: { name: Name; of: Named; query: boolean; defs: Record<string, Schema>; encoding: string; done: () => void }) {
  const schema = resolve(of.schema, defs);
  const [values, setValues] = useState<Values>({});
  const [raw, setRaw] = useState("");
  const [asJson, setAsJson] = useState(!hasForm(schema));
  const [answer, setAnswer] = useState<{ kind: string; text: string; note: string } | undefined>();
  const [faults, setFaults] = useState<Record<string, string>>({});
  const [command, setCommand] = useState(newCommandId);
  let given: unknown;
  let bad = "";
  if (asJson) {
    try {
      given = raw === "" ? undefined : exact(raw);
    } catch (e) {
      bad = textOf(e);
    }
  } else given = valueOf(schema, values, defs);
  const body = given === undefined ? {} : encoding === "bytes" ? { data: base64(new TextEncoder().encode(JSON.stringify(given))) } : { json: given };
  const request = query ? { ...name, query: of.name, ...body } : { ...name, command: of.name, ...body, commandId: command };
  const method = query ? "entity.QueryEntity" : "entity.SendCommand";
  const run = async () => {
    setFaults({});
    setAnswer(undefined);
    try {
      const got = query ? await call("entity.QueryEntity", request) : await once("entity.SendCommand", request);
      setAnswer({ kind: "good", text: pretty(payload(got)), note: query ? `at sequence ${num(got.sequence)}, ${count(num(got.fuel))} fuel` : `sequence ${num(got.sequence)}, ${got.eventCount ?? 0} events, ${count(num(got.fuel))} fuel, answered by ${got.nodeId}${got.duplicate ? "; it had been run before" : ""}` });
      setCommand(newCommandId());
    } catch (e) {
      const fields: Record<string, string> = {};
      if (e instanceof HostdError) for (const v of e.violations) fields[v.field.replace(/^payload\.?/, "").split(/[.[]/)[0] ?? ""] ??= v.description;
      setFaults(fields);
      setAnswer({ kind: "bad", text: textOf(e), note: e instanceof Rejected ? `rejected: ${e.rejection}` : e instanceof HostdError ? e.code : "" });
      // Otherwise the id stays the same, so that the command takes effect once even if this attempt did.
      if (e instanceof HostdError && ["invalid_argument", "failed_precondition", "not_found"].includes(e.code)) setCommand(newCommandId());
    }
    done();
  };
  const line = lineOf("entity", query ? "query" : "send", name.entityType, name.entityId, of.name, ...(given === undefined ? [] : [JSON.stringify(given)]));
  return (
    <form onSubmit={(e) => {
      e.preventDefault();
      void run();
    }}>
      {schema.description && <p class="quiet">{schema.description}</p>}
      {asJson ? <Json id="payload" value={raw} change={setRaw} hint="JSON; leave empty for no payload" /> : <Form schema={schema} defs={defs} values={values} change={setValues} faults={faults} />}
      <p class="bar">
        <button type="submit" class="primary" disabled={bad !== ""}>{query ? "Ask" : "Send"}</button>
        {hasForm(schema) && <label><input type="checkbox" checked={asJson} onChange={(e) => {
          setRaw(JSON.stringify(given ?? {}, null, 2));
          setAsJson(e.currentTarget.checked);
        }} /> as JSON</label>}
        <AsCommand line={line} method={method} request={request} />
      </p>
      {answer && <div class={`answer ${answer.kind}`} role="status"><p><Badge kind={answer.kind}>{answer.kind === "good" ? "done" : "failed"}</Badge> <span class="quiet">{answer.note}</span></p><pre>{answer.text}</pre></div>}
    </form>
  );
}

const page = 200;

/** The records of commands, newest first, in pages. */
function Timeline({ name, last }: { name: Name; last: number }) {
  const [from, begin] = useState<number | undefined>(undefined); // undefined: the newest
  const [tokens, setTokens] = useState<string[]>([]); // of the pages before this one
  const request = { ...name, newestFirst: true, pageSize: page, ...(from === undefined ? {} : { fromSequence: from }), ...(tokens.length ? { pageToken: tokens[tokens.length - 1] } : {}) };
  const newest = from === undefined && tokens.length === 0;
  const { data, error, reload } = useRead<{ records?: JournalRecord[]; nextPageToken?: string }>("entity.ReadRecords", request);
  useEffect(() => {
    if (newest) reload();
  }, [last]);
  const records = data?.records ?? [];
  const go = (to: number | undefined) => {
    setTokens([]);
    begin(to);
  };
  const later = () => {
    if (tokens.length) setTokens(tokens.slice(0, -1));
    else go(from === undefined || from + page >= last ? undefined : from + page);
  };
  const line = lineOf("entity", "records", name.entityType, name.entityId, ...(from === undefined ? [] : [["--from", from]]));
  return (
    <Panel title="Events" label="Events" aside={<AsCommand line={line} method="entity.ReadRecords" request={request} />}>
      <Fault text={error} />
      <nav class="pager" aria-label="Pages of events">
        <button type="button" disabled={newest} onClick={() => go(undefined)}>Newest</button>
        <button type="button" disabled={newest} onClick={later}>Later</button>
        <span>{records.length > 0 && <>{count(Math.min(last, firstOf(records[records.length - 1]!)))}–{count(num(records[0]!.sequence))} of {count(last)}</>}</span>
        <button type="button" disabled={!data?.nextPageToken} onClick={() => setTokens([...tokens, data!.nextPageToken!])}>Earlier</button>
        <form class="bar" onSubmit={(e) => {
          e.preventDefault();
          const to = Math.floor(Number(new FormData(e.currentTarget).get("from")));
          if (to >= 1) go(Math.min(to, last));
        }}><label>Go to <input type="number" name="from" min={1} max={last} aria-label="Go to the event with this sequence" /></label></form>
      </nav>
      <Wide name="Table of events">
        <table class="events">
          <thead><tr><th class="n">Sequence</th><th>Events</th><th>Caller</th><th class="n">Fuel</th><th>Recorded</th><th>Content</th></tr></thead>
          <tbody>{records.map((r) => <Row key={`${r.sequence} ${r.commandId}`} record={r} />)}</tbody>
        </table>
      </Wide>
      {data && records.length === 0 && <Empty>There are no records.</Empty>}
    </Panel>
  );
}

/** The first sequence of a record, or the unchanged sequence if it has no events. */
const firstOf = (r: JournalRecord) => num(r.sequence) - Math.max(0, (r.eventCount ?? 0) - 1);

/** The sender of a command. */
function MadeBy({ of: r }: { of: JournalRecord }) {
  const s = r.source ?? { kind: "client" };
  if (s.entityType) return <a href={router.path("entities", s.entityType, s.entityId ?? "")}>{s.entityType}/{s.entityId}</a>;
  if (s.kind === "timer") return <>timer {s.timer}</>;
  if (s.kind === "operator") return <>operator: {s.action} {s.timer}</>;
  if (r.principal?.name) return <>{r.principal.kind}:{r.principal.name}</>;
  return <span class="quiet">{s.kind}</span>;
}

function Row({ record: r }: { record: JournalRecord }) {
  const [open, set] = useState(false);
  const events = r.events ?? [];
  const several = events.length > 1;
  const content = several ? events.map(payload) : events[0] ? payload(events[0]) : undefined;
  const reply = payload(r);
  const first = firstOf(r);
  return (
    <>
      <tr>
        <td class="n"><button type="button" class="plain" aria-expanded={open} onClick={() => set(!open)}>{several ? `${first}–${r.sequence}` : (r.sequence ?? 0)}</button></td>
        <td>
          {[...new Set(events.map((e) => e.eventType))].slice(0, 4).join(", ") || <span class="quiet">none</span>}{several && <span class="quiet"> × {count(r.eventCount ?? 0)}</span>}
          {r.deleted && <> <Badge kind="warn">deleted</Badge></>}
          {r.rejection && <> <Badge kind="bad">{r.rejection.code}</Badge></>}
          {r.messages?.length ? <> <Badge kind="accent">{r.messages.length} sent</Badge></> : null}
          {r.timers?.length ? <> <Badge>{r.timers.length === 1 ? "timer" : `${r.timers.length} timers`}</Badge></> : null}
        </td>
        <td class="by"><MadeBy of={r} /></td>
        <td class="n">{count(num(r.fuel))}</td>
        <td><When at={r.recordedAt} /></td>
        <td class="content">{r.truncated ? "too long to show here" : content === undefined ? "" : brief(content, 160)}</td>
      </tr>
      {open && (
        <tr class="more"><td /><td colSpan={5}>
          {events.map((e) => <div key={e.sequence}>{several && <h3>{e.sequence} {e.eventType}</h3>}{!r.truncated && <pre>{pretty(payload(e))}</pre>}{e.tags?.length ? <p class="quiet">Tags: {e.tags.join(", ")}</p> : null}</div>)}
          <dl class="facts tight">
            <Fact name="Command id"><code>{r.commandId || "–"}</code></Fact>
            <Fact name="Module"><Digest of={r.moduleDigest} /></Fact>
            <Fact name="Caller"><MadeBy of={r} /></Fact>
            {r.source?.due && <Fact name="Due"><When at={r.source.due} /></Fact>}
            {reply !== undefined && <Fact name="Reply"><code>{brief(reply, 300)}</code></Fact>}
            {r.rejection && <Fact name="Rejected">{r.rejection.command}: {r.rejection.message || r.rejection.code}</Fact>}
          </dl>
          {(r.messages ?? []).length > 0 && <ul class="parts">{r.messages!.map((m, i) => <li key={i}>sent <b>{m.command}</b> to <a href={router.path("entities", m.entityType, m.entityId)}>{m.entityType}/{m.entityId}</a> <code>{brief(payload(m), 160)}</code>{m.onReply && <span class="quiet"> answer to {m.onReply}</span>}</li>)}</ul>}
          {(r.timers ?? []).length > 0 && <ul class="parts">{r.timers!.map((t, i) => <li key={i}>timer <b>{t.timer.name}</b> {t.cancelled ? "cancelled" : <>set to <When at={t.timer.due} />: {t.timer.command} {t.timer.schedule && <span class="quiet">schedule {t.timer.schedule}</span>}</>}</li>)}</ul>}
        </td></tr>
      )}
    </>
  );
}
