// Repeated reads and streams, which run only while the page is visible.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, HostdError, stream, textOf, token, type Method } from "./api.ts";

/** Called when the page becomes visible, or has been hidden for 5 seconds. */
const watchers = new Set<() => void>();
let looking = !document.hidden;
let leaving: ReturnType<typeof setTimeout> | undefined;

document.addEventListener("visibilitychange", () => {
  clearTimeout(leaving);
  const set = (v: boolean) => {
    if (looking === v) return;
    looking = v;
    for (const w of [...watchers]) w();
  };
  if (document.hidden) leaving = setTimeout(set, 5_000, false);
  else set(true);
});

/** Runs work while the page is visible. The signal ends the work. */
export function whileLooking(work: (signal: AbortSignal) => Promise<void>): () => void {
  let running: AbortController | undefined;
  const update = () => {
    if (looking && !running) {
      running = new AbortController();
      void work(running.signal);
    } else if (!looking) {
      running?.abort();
      running = undefined;
    }
  };
  watchers.add(update);
  update();
  return () => {
    watchers.delete(update);
    running?.abort();
  };
}

export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}

export interface Loaded<T> {
  data?: T;
  error?: string;
  /** The code of the error; empty if no node answered. */
  code?: string;
  reload(): void;
}

/** Reads all pages of a listing, and returns the last page with the items of all pages. */
async function pages<T>(method: Method, request: object, listed: string, signal: AbortSignal): Promise<T> {
  const items: unknown[] = [];
  for (let pageToken = ""; ; ) {
    const page = await call<any>(method, { ...request, pageToken }, true, signal);
    items.push(...(page[listed] ?? []));
    pageToken = page.nextPageToken ?? "";
    if (!pageToken) return { ...page, [listed]: items };
  }
}

/** Calls a read every everyMs milliseconds, or once if everyMs is 0. If listed is given, the name of the items, it reads all pages. */
export function useRead<T = any>(method: Method, request: object | undefined, everyMs = 0, listed = ""): Loaded<T> {
  const [state, set] = useState<{ data?: T; error?: string; code?: string; of?: string }>({});
  const [turn, again] = useState(0);
  const key = method + JSON.stringify(request ?? null) + token.value;
  useEffect(() => {
    if (request === undefined) return;
    return whileLooking(async (signal) => {
      do {
        try {
          const data = await (listed ? pages<T>(method, request, listed, signal) : call<T>(method, request, true, signal));
          if (!signal.aborted) set({ data, of: key });
        } catch (e) {
          if (!signal.aborted) set((s) => ({ ...(s.of === key && s.data !== undefined ? { data: s.data } : {}), error: textOf(e), code: e instanceof HostdError ? e.code : "", of: key }));
        }
        if (everyMs) await sleep(everyMs, signal);
      } while (everyMs && !signal.aborted);
    });
  }, [key, everyMs, turn]);
  const { of, ...shown } = state;
  return { ...(of === key ? shown : {}), reload: () => again((n) => n + 1) };
}

/**
 * Follows a stream that all tabs of the browser share, because over HTTP/1.1 a
 * browser opens few connections to a node. One tab has the stream, with a lock, and
 * sends the others the results of fold.
 */
export function useShared<T>(method: Method, heard: (now: T) => void, fold: (was: T | undefined, message: T) => T, failed: (why: string) => void): void {
  const latest = useRef({ heard, failed });
  latest.current = { heard, failed };
  useEffect(() => whileLooking(async (signal) => {
    const name = `hostd ${method} ${token.value}`;
    const channel = new BroadcastChannel(name);
    signal.addEventListener("abort", () => channel.close(), { once: true });
    let now: T | undefined;
    channel.onmessage = ({ data }) => {
      if (data.ask) {
        if (now !== undefined) channel.postMessage({ now });
      } else if (data.failed) latest.current.failed(data.failed);
      else latest.current.heard(data.now);
    };
    channel.postMessage({ ask: true });
    const hold = async () => {
      for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, 8_000)) {
        let why = "the node closed the stream";
        try {
          for await (const message of stream<T>(method, {}, signal)) {
            pause = 500;
            now = fold(now, message);
            latest.current.heard(now);
            channel.postMessage({ now });
          }
        } catch (e) {
          why = textOf(e);
        }
        if (signal.aborted) return;
        latest.current.failed(why);
        channel.postMessage({ failed: why });
        await sleep(pause, signal);
      }
    };
    // Locks need a secure origin. On other pages each tab has its own stream.
    await (navigator.locks ? navigator.locks.request(name, { signal }, hold) : hold()).catch(() => {});
  }), [method, token.value]);
}

/**
 * Runs work that follows its own stream, in one tab of the browser at a time. taken
 * is true if another tab does so. take moves the work to this tab.
 */
export function useOneTab(work: (signal: AbortSignal) => Promise<void>, of: string): { taken: boolean; take(): void } {
  const [taken, setTaken] = useState(false);
  const [turn, setTurn] = useState(0);
  useEffect(() => whileLooking(async (signal) => {
    if (!navigator.locks) return work(signal);
    for (let steal = turn > 0; !signal.aborted; steal = false) {
      const stop = new AbortController();
      signal.addEventListener("abort", () => stop.abort(), { once: true });
      const waiting = setTimeout(setTaken, 300, true);
      let done = false;
      try {
        await navigator.locks.request("hostd follow", steal ? { steal } : { signal }, async () => {
          clearTimeout(waiting);
          setTaken(false);
          await work(stop.signal);
          done = true;
        });
      } catch {
        // Another tab took it over, so wait for that tab.
        done = false;
      }
      clearTimeout(waiting);
      stop.abort();
      if (done) return;
    }
  }), [of, turn, token.value]);
  return { taken, take: () => setTurn((n) => n + 1) };
}
