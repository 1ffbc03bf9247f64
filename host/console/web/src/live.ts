// What is asked for again and again, only while somebody looks.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, stream, textOf, token, type Method } from "./api.ts";

/** Whether the page has been seen within the last 5 seconds. */
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

/** Runs work while the page is looked at; its signal ends it. */
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
  reload(): void;
}

/** Calls a read, and again each so many milliseconds; 0 is once. */
export function useRead<T = any>(method: Method, request: object | undefined, everyMs = 0): Loaded<T> {
  const [state, set] = useState<{ data?: T; error?: string; of?: string }>({});
  const [turn, again] = useState(0);
  const key = method + JSON.stringify(request ?? null) + token.value;
  useEffect(() => {
    if (request === undefined) return;
    return whileLooking(async (signal) => {
      do {
        try {
          const data = await call<T>(method, request, true, signal);
          if (!signal.aborted) set({ data, of: key });
        } catch (e) {
          if (!signal.aborted) set((s) => ({ ...(s.of === key && s.data !== undefined ? { data: s.data } : {}), error: textOf(e), of: key }));
        }
        if (everyMs) await sleep(everyMs, signal);
      } while (everyMs && !signal.aborted);
    });
  }, [key, everyMs, turn]);
  const { of, ...shown } = state;
  return { ...(of === key ? shown : {}), reload: () => again((n) => n + 1) };
}

/**
 * Follows a stream that all tabs of the browser share: over HTTP/1.1 it has few
 * connections to a node. One tab holds it, by a lock, and tells the others.
 */
export function useShared<T>(method: Method, heard: (message: T) => void): void {
  const latest = useRef(heard);
  latest.current = heard;
  useEffect(() => whileLooking(async (signal) => {
    const name = `hostd ${method} ${token.value}`;
    const channel = new BroadcastChannel(name);
    signal.addEventListener("abort", () => channel.close(), { once: true });
    let last: T | undefined;
    channel.onmessage = ({ data }) => {
      if (data.ask) {
        if (last !== undefined) channel.postMessage({ message: last });
      } else latest.current(data.message);
    };
    channel.postMessage({ ask: true });
    const hold = async () => {
      for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, 8_000)) {
        try {
          for await (const message of stream<T>(method, {}, signal)) {
            pause = 500;
            last = message;
            latest.current(message);
            channel.postMessage({ message });
          }
        } catch {
          // The page says so itself: its other calls fail, too.
        }
        await sleep(pause, signal);
      }
    };
    // Locks are for pages of a secure origin; others hold a stream a tab.
    await (navigator.locks ? navigator.locks.request(name, { signal }, hold) : hold()).catch(() => {});
  }), [method, token.value]);
}
