// What the caller may do, as the nodes say.
import { useEffect, useState } from "preact/hooks";
import { call, token } from "./api.ts";

/** What a button needs: a verb, and the type or entity that it is about. */
export interface Needs { verb: "admin" | "deploy" | "operate"; entityType?: string; entityId?: string }

const asked = new Map<string, Promise<string>>();

/** Why the caller may not do what is needed; empty while it may, or nobody knows. */
export function useDenied(needs: Needs | undefined): string {
  const key = needs ? JSON.stringify([token.value, needs]) : "";
  const [denied, set] = useState("");
  useEffect(() => {
    let current = true;
    set("");
    if (!needs) return;
    let answer = asked.get(key);
    if (!answer) {
      answer = call<{ allowed?: boolean; reason?: string }>("cluster.CanI", needs).then((m) => (m.allowed ? "" : m.reason || `needs the verb ${needs.verb}`));
      // The roles may change: it is asked again by what is shown a minute later.
      answer.catch(() => asked.delete(key));
      setTimeout(() => asked.delete(key), 60_000);
      asked.set(key, answer);
    }
    answer.then((why) => current && set(why), () => {});
    return () => { current = false; };
  }, [key]);
  return denied;
}
