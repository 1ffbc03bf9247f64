// Components that the views share.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { curlOf, textOf, type Method } from "./api.ts";
import { useDenied, type Needs } from "./may.ts";

export function Panel({ title, aside, children, label }: { title?: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren; label?: string }) {
  return (
    <section class="panel" aria-label={label}>
      {(title || aside) && <header><h2>{title}</h2><div class="aside">{aside}</div></header>}
      {children}
    </section>
  );
}

export function Fault({ text }: { text: string | undefined }) {
  return text ? <p class="fault" role="alert">{text}</p> : null;
}

export function Badge({ kind, children }: { kind?: string | undefined; children: ComponentChildren }) {
  return <span class={`badge ${kind ?? ""}`}>{children}</span>;
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <div class="fact"><dt>{name}</dt><dd>{children}</dd></div>;
}

/** The first 12 digits of a digest, which is what people compare. */
export function Digest({ of }: { of: string | undefined }) {
  return of ? <code title={of}>{of.slice(0, 12)}</code> : <span class="quiet">none</span>;
}

export function When({ at }: { at: string | undefined }) {
  if (!at) return <span class="quiet">–</span>;
  const d = new Date(at);
  const p = (n: number, w = 2) => String(n).padStart(w, "0");
  const east = -d.getTimezoneOffset();
  const zone = `${east < 0 ? "-" : "+"}${p(Math.floor(Math.abs(east) / 60))}:${p(Math.abs(east) % 60)}`;
  return <time dateTime={at} title={at}>{`${d.getFullYear()}-${p(d.getMonth() + 1)}-${p(d.getDate())} ${p(d.getHours())}:${p(d.getMinutes())}:${p(d.getSeconds())}.${p(d.getMilliseconds(), 3)}${zone}`}</time>;
}

/** The call as commands for a terminal. */
export function AsCommand({ line, method, request }: { line: string; method: Method; request: object }) {
  return (
    <details class="lines">
      <summary>Command line</summary>
      <Line text={line} />
      <Line text={curlOf(method, request)} />
    </details>
  );
}

function Line({ text }: { text: string }) {
  const [copied, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set(true);
      setTimeout(set, 1_500, false);
    } catch {
      // Pages without TLS cannot copy. The text can be selected instead.
    }
  };
  return <div class="line"><code>{text}</code><button type="button" class="small" onClick={copy}>{copied ? "copied" : "copy"}</button></div>;
}

/** A button that runs an action, once at a time, and shows its error. */
export function Act({ run, children, danger, needs }: { run: () => Promise<unknown>; children: ComponentChildren; danger?: boolean; needs?: Needs }) {
  const [busy, setBusy] = useState(false);
  const denied = useDenied(needs);
  const [error, setError] = useState("");
  const go = async () => {
    setBusy(true);
    setError("");
    try {
      await run();
    } catch (e) {
      setError(textOf(e));
    }
    setBusy(false);
  };
  return (
    <span class="act">
      <button type="button" class={danger ? "danger" : ""} disabled={busy || denied !== ""} title={denied} onClick={go}>{children}</button>
      {error && <span class="fault" role="alert">{error}</span>}
    </span>
  );
}

/** A button that asks for confirmation, and shows the commands that do the same. */
export function Ask({ label, title, text, line, method, request, run, danger, needs }: { label: string; title: string; text: string; line: string; method: Method; request: object; run: () => Promise<unknown>; danger?: boolean; needs?: Needs }) {
  const denied = useDenied(needs);
  const dialog = useRef<HTMLDialogElement>(null);
  const [open, set] = useState(false);
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  return (
    <>
      <button type="button" class={danger ? "danger small" : "small"} disabled={denied !== ""} title={denied} onClick={() => set(true)}>{label}</button>
      {open && (
        <dialog ref={dialog} onClose={() => set(false)} aria-label={title}>
          <h2>{title}</h2>
          <p>{text}</p>
          <AsCommand line={line} method={method} request={request} />
          <footer>
            <button type="button" onClick={() => dialog.current?.close()}>Cancel</button>
            <Act danger={danger ?? false} run={async () => {
              await run();
              dialog.current?.close();
            }}>{label}</Act>
          </footer>
        </dialog>
      )}
    </>
  );
}

/** Content that may be wider than the page, with its own scroll bar. */
export function Wide({ name, children }: { name: string; children: ComponentChildren }) {
  return <div class="scroll" tabIndex={0} role="region" aria-label={name}>{children}</div>;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function bytesText(n: number): string {
  if (n < 1024) return `${n} B`;
  const unit = Math.min(4, Math.floor(Math.log2(n) / 10));
  return `${(n / 2 ** (10 * unit)).toFixed(1)} ${["", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** Formats a duration with its two largest units. */
export function span(ms: number): string {
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3_600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  if (s < 86_400) return `${Math.floor(s / 3_600)} h ${Math.floor((s % 3_600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3_600)} h`;
}

export function count(n: number): string {
  return n.toLocaleString("en");
}

export function rate(n: number): string {
  return n >= 1e9 ? `${(n / 1e9).toFixed(1)} G` : n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : n >= 1e4 ? `${(n / 1e3).toFixed(1)} k` : n.toFixed(n < 10 ? 1 : 0);
}

export function TypeTabs({ types, chosen, to }: { types: string[]; chosen: string | undefined; to: (type: string) => string }) {
  return <nav class="tabs" aria-label="Entity types">{types.map((t) => <a key={t} href={to(t)} aria-current={t === chosen ? "page" : undefined}>{t}</a>)}</nav>;
}

/** A note that another tab follows the browser's only stream. */
export function Taken({ take }: { take(): void }) {
  return <p class="warning">Another tab of this browser is following live data. <button type="button" class="small" onClick={take}>Follow here</button></p>;
}
