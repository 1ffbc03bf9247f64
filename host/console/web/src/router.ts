// The addresses of views are paths below /console/.
import { signal } from "@preact/signals";

const base = "/console/";

function parts(): string[] {
  return location.pathname.slice(base.length).split("/").filter(Boolean).map(decodeURIComponent);
}

/** The decoded parts of the current path. */
export const at = signal(parts());
/** The query parameters of the current address. */
export const query = signal(new URLSearchParams(location.search));

function moved(): void {
  at.value = parts();
  query.value = new URLSearchParams(location.search);
}

addEventListener("popstate", moved);

export const router = {
  path: (...words: string[]) => base + words.map(encodeURIComponent).join("/"),
  go(to: string): void {
    history.pushState(null, "", to);
    moved();
    scrollTo(0, 0);
  },
  set(values: Record<string, string>): void {
    const p = new URLSearchParams(location.search);
    for (const [k, v] of Object.entries(values)) v ? p.set(k, v) : p.delete(k);
    history.replaceState(null, "", location.pathname + (p.size ? "?" + p : ""));
    moved();
  },
};

addEventListener("click", (e) => {
  const a = (e.target as Element).closest?.("a");
  if (!a || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || a.target || a.origin !== location.origin || !a.pathname.startsWith(base)) return;
  e.preventDefault();
  router.go(a.pathname + a.search);
});
