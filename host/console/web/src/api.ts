// Calls of the public API in JSON over Connect, to the node that served the page.
// 64-bit numbers are strings in JSON.
import { computed, signal } from "@preact/signals";
import { HostdError, Transport } from "../../../../api/ts/src/core.ts";
import { router } from "./router.ts";

export { base64, HostdError, Rejected, newCommandId, parse } from "../../../../api/ts/src/core.ts";

const kept = "hostd-token";

/** The token of this tab, stored until the tab is closed; empty if there is none. */
export const token = signal(takeToken());
/** Not empty if a node requires a token. */
export const signIn = signal("");

/**
 * Returns the token of a sign-in link, which `hostd dev --auth` prints. It is removed
 * from the address at once, because browsers store addresses. Anyone can write such
 * a link, so it works on this machine only, and never replaces a tab's token.
 */
function takeToken(): string {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (given) {
    const local = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(location.hostname);
    if (local && !sessionStorage.getItem(kept)) sessionStorage.setItem(kept, decodeURIComponent(given[1]!));
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(kept) ?? "";
}

export function setToken(text: string): void {
  if (text) sessionStorage.setItem(kept, text);
  else sessionStorage.removeItem(kept);
  token.value = text;
  signIn.value = "";
}

const transport = computed(() => new Transport(location.origin, token.value ? { token: token.value } : {}));

const services = { entity: "hostd.entity.v1.EntityService", module: "hostd.module.v1.ModuleService", cluster: "hostd.cluster.v1.ClusterService" };
export type Method = `${keyof typeof services}.${string}`;

function procedure(method: Method): string {
  const [service, name] = method.split(".") as [keyof typeof services, string];
  return `${services[service]}/${name}`;
}

/** Calls a method. A read is retried until it succeeds or times out. */
export async function call<T = any>(method: Method, request: object = {}, read = true, signal?: AbortSignal): Promise<T> {
  try {
    return await transport.value.unary(procedure(method), request, read, signal ? { signal } : {});
  } catch (e) {
    throw seen(e);
  }
}

/** Sends a command with an id. If it is sent again, it takes effect once. */
export async function once<T = any>(method: Method, request: object): Promise<T> {
  try {
    return await transport.value.unary(procedure(method), request, {});
  } catch (e) {
    throw seen(e);
  }
}

export async function* stream<T = any>(method: Method, request: object, signal: AbortSignal): AsyncGenerator<T> {
  try {
    yield* transport.value.stream(procedure(method), request, signal);
  } catch (e) {
    throw seen(e);
  }
}

function seen(e: unknown): unknown {
  if (e instanceof HostdError && e.code === "unauthenticated") signIn.value = e.message;
  return e;
}

export const num = (v: string | number | undefined): number => Number(v ?? 0);

/** Returns the seconds of a google.protobuf.Duration in JSON, such as "1.5s". */
export const secondsOf = (v: string | undefined): number => parseFloat(v ?? "0");

/** The node's address for the command line. */
export const address = location.host;

/** Returns the curl command for a call. */
export function curlOf(method: Method, request: object): string {
  const auth = token.value ? ` -H "Authorization: Bearer $TOKEN"` : "";
  return `curl ${location.origin}/${procedure(method)} -H "Content-Type: application/json"${auth} -d ${quote(JSON.stringify(request))}`;
}

// The hostd command for a call.

// A Flag is a flag of a command, with its value if it has one.
export type Flag = readonly (string | number)[];

// lineOf returns a shell command. An id may look like a flag, such as
// --addr=http://evil, so the first such word and all after it follow "--".
export function lineOf(...parts: (string | number | Flag)[]): string {
  const words = parts.filter((p) => typeof p !== "object").map((p) => String(p));
  const flags = parts.filter((p) => typeof p === "object").flatMap((p) => p.map(String));
  const first = words.findIndex((w) => w.startsWith("-"));
  const named = first < 0 ? words.length : first;
  const all = ["hostd", ...words.slice(0, named), ...flags, ...(address === "127.0.0.1:7070" ? [] : ["--addr", address]), ...(first < 0 ? [] : ["--", ...words.slice(first)])];
  return all.map(quote).join(" ");
}

export function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

export function textOf(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}

export const entityPath = (type: string, id: string) => router.path("entities", type, id);
