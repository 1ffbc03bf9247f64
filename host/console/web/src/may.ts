// The permissions of the caller.
import { useEffect, useState } from "preact/hooks";
import { call, token } from "./api.ts";

/** The permission that a button needs: a verb, and its type or entity. */
export interface Needs { verb: "admin" | "deploy" | "operate"; entityType?: string; entityId?: string }

const asked = new Map<string, Promise<string>>();

/** Returns why the caller lacks a permission; empty if it has the permission or that is unknown. */
export function useDenied(needs: Needs | undefined): string {
  const key = needs ? JSON.stringify([token.value, needs]) : "";
  const [denied, set] = useState("");
  useEffect(() => {
    let current = true;
    set("");
    if (!needs) return;
    let answer = asked.get(key);
    if (!answer) {
      answer = call<{ allowed?: boolean; reason?: string }>("cluster.CheckAccess", needs).then((m) => (m.allowed ? "" : m.reason || `needs the verb ${needs.verb}`));
      // Roles may change, so the answer is used for one minute.
      answer.catch(() => asked.delete(key));
      setTimeout(() => asked.delete(key), 60_000);
      asked.set(key, answer);
    }
    answer.then((why) => current && set(why), () => {});
    return () => { current = false; };
  }, [key]);
  return denied;
}
