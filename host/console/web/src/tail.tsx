// The events of a type, live.
import { useState } from "preact/hooks";
import { entityPath, lineOf, num, stream, textOf } from "./api.ts";
import { brief, payload } from "./json.ts";
import { sleep, useOneTab } from "./live.ts";
import { useTypes } from "./modules.tsx";
import { query, router } from "./router.ts";
import { AsCommand, Badge, Empty, Fault, Panel, Taken, TypeTabs, When, Wide } from "./ui.tsx";

interface Event { sequence: string; eventType: string; json?: unknown; data?: string; recordedAt: string; entityId: string; tags?: string[]; cursor: string }

const most = 200;

/** Adds an event, newest first. Events of different shards may arrive out of order. */
function placed(was: Event[], m: Event): Event[] {
  const at = Date.parse(m.recordedAt);
  const i = was.findIndex((e) => Date.parse(e.recordedAt) <= at);
  return i < 0 ? [...was, m] : [...was.slice(0, i), m, ...was.slice(i)];
}

/** The maximum number of events shown per second. Further ones are skipped. */
const aSecond = 25;

export function TailView({ type: given }: { type: string | undefined }) {
  const types = useTypes();
  const type = given ?? types.data?.[0]?.type;
  return (
    <>
      <TypeTabs types={types.data?.map((t) => t.type) ?? []} chosen={type} to={(t) => router.path("tail", t)} />
      <Fault text={types.error} />
      {type && <Events key={type} type={type} />}
    </>
  );
}

function Events({ type }: { type: string }) {
  const tag = query.value.get("tag") ?? "";
  const [events, setEvents] = useState<Event[]>([]);
  const [error, setError] = useState("");
  const [begun, setBegun] = useState(false);
  const [held, setHeld] = useState(false);
  const [skips, setSkips] = useState(false);
  const request = { entityType: type, follow: true, fromNewest: true, ...(tag ? { tag } : {}) };
  const { taken, take } = useOneTab(async (signal) => {
    if (held) return;
    setEvents([]);
    let cursor = "";
    for (let pause = 500; !signal.aborted;) {
      const turn = new AbortController();
      const end = () => turn.abort();
      signal.addEventListener("abort", end, { once: true });
      let since = Date.now();
      let shown = 0;
      try {
        for await (const m of stream<Event>("entity.SubscribeEvents", cursor ? { ...request, cursor } : request, turn.signal)) {
          pause = 500;
          cursor = m.cursor;
          setError("");
          setBegun(true);
          if (num(m.sequence) === 0) continue;
          setEvents((was) => placed(was, m).slice(0, most));
          if (Date.now() - since >= 1_000) {
            since = Date.now();
            shown = 0;
            setSkips(false);
          }
          if (++shown === aSecond) break;
        }
      } catch (e) {
        if (!signal.aborted) setError(textOf(e));
      }
      turn.abort();
      signal.removeEventListener("abort", end);
      if (shown === aSecond) {
        setSkips(true);
        cursor = "";
        await sleep(since + 1_000 - Date.now(), signal);
      } else {
        await sleep(pause, signal);
        pause = Math.min(2 * pause, 8_000);
      }
    }
  }, `${type} ${tag} ${held}`);
  return (
    <Panel title={`Events of ${type}`} aside={<><button type="button" class="small" onClick={() => setHeld(!held)}>{held ? "Resume" : "Pause"}</button><AsCommand line={lineOf("entity", "tail", type, ["--from", "newest"], ...(tag ? [["--tag", tag]] : []))} method="entity.SubscribeEvents" request={request} /></>}>
      <div class="bar"><label>Tag <input value={tag} onChange={(e) => router.set({ tag: e.currentTarget.value })} spellcheck={false} /></label></div>
      <Fault text={error} />
      {taken && <Taken take={take} />}
      {skips && <p class="quiet" role="status" data-skips>More than {aSecond} events a second are committed. Only the first of each second are shown; the command line prints all.</p>}
      {events.length === 0 && <div data-begun={String(begun)}><Empty>{begun ? "New events appear here, newest first." : "Looking for the newest event…"}</Empty></div>}
      {events.length > 0 && (
        <Wide name="Table of new events"><table class="events">
          <thead><tr><th>When</th><th>Entity</th><th class="n">Sequence</th><th>Event</th><th>Content</th></tr></thead>
          <tbody>{events.map((e) => (
            <tr key={`${e.entityId} ${e.sequence}`} data-event={e.entityId}>
              <td><When at={e.recordedAt} /></td>
              <td class="id"><a href={entityPath(type, e.entityId)}>{e.entityId}</a></td>
              <td class="n">{e.sequence}</td>
              <td>{e.eventType} {(e.tags ?? []).map((t) => <Badge key={t}>{t}</Badge>)}</td>
              <td class="content">{brief(payload(e))}</td>
            </tr>
          ))}</tbody>
        </table></Wide>
      )}
    </Panel>
  );
}
