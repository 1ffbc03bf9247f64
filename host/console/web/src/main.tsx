import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { setToken, signIn, token } from "./api.ts";
import { cluster, ClusterView, useCluster } from "./cluster.tsx";
import { EntitiesView, HotView, LettersView, TimersView } from "./entities.tsx";
import { EntityView } from "./entity.tsx";
import { LoadView } from "./load.tsx";
import { LogsView, ModulesView } from "./modules.tsx";
import { at, router } from "./router.ts";
import { TailView } from "./tail.tsx";
import { Badge, Empty, Fault, Panel } from "./ui.tsx";

const views: [path: string, name: string][] = [["", "Cluster"], ["entities", "Entities"], ["load", "Load"], ["hot", "Hot"], ["timers", "Timers"], ["modules", "Modules"], ["letters", "Dead letters"], ["tail", "Events"], ["logs", "Logs"]];

function View() {
  const [view, ...rest] = at.value;
  switch (view ?? "") {
    case "":
      return <ClusterView />;
    case "entities":
      return rest.length >= 2 ? <EntityView key={rest.join("/")} type={rest[0]!} id={rest[1]!} /> : <EntitiesView type={rest[0]} />;
    case "load":
      return <LoadView />;
    case "hot":
      return <HotView />;
    case "timers":
      return <TimersView key={rest[0] ?? ""} type={rest[0]} />;
    case "modules":
      return <ModulesView type={rest[0]} />;
    case "letters":
      return <LettersView />;
    case "tail":
      return <TailView type={rest[0]} />;
    case "logs":
      return <LogsView type={rest[0]} />;
  }
  return <Panel title="Page not found"><Empty>This page does not exist. <a href={router.path()}>Go to the cluster</a></Empty></Panel>;
}

function App() {
  useCluster((at.value[0] ?? "") === "");
  const view = at.value[0] ?? "";
  useEffect(() => document.querySelector(".top [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [view]);
  const c = cluster.value;
  const out = (c?.members ?? []).filter((m) => !m.reachable).length;
  document.title = [views.find(([p]) => p === (at.value[0] ?? ""))?.[1], ...at.value.slice(1), "hostd"].filter(Boolean).join(" · ");
  return (
    <>
      <a class="skip" href="#main">Skip to content</a>
      <header class="top">
        <a class="brand" href={router.path()}><svg viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="4" /><path d="M4.5 3.5v9M11.5 3.5v9M4.5 8h7" /></svg>hostd</a>
        <nav aria-label="Views">{views.map(([p, name]) => <a key={p} href={p ? router.path(p) : router.path()} aria-current={(at.value[0] ?? "") === p ? "page" : undefined}>{name}</a>)}</nav>
        <div class="aside">
          {c && <Badge kind={c.quorum && out === 0 ? "good" : c.quorum ? "warn" : "bad"}>{c.quorum ? (out === 0 ? `${c.members?.length ?? 0} ${c.members?.length === 1 ? "node" : "nodes"}` : `${out} of ${c.members?.length} not heard`) : "no quorum"}</Badge>}
          {token.value && <button type="button" class="small" onClick={() => setToken("")}>Sign out</button>}
        </div>
      </header>
      <main id="main" tabIndex={-1}>{signIn.value ? <SignIn /> : <View />}</main>
    </>
  );
}

function SignIn() {
  const [text, set] = useState("");
  return (
    <Panel title="Sign in">
      <p>The nodes require authentication. Enter a token; this tab keeps it until you close the tab.</p>
      <Fault text={token.value ? signIn.value : ""} />
      <form class="bar" onSubmit={(e) => {
        e.preventDefault();
        setToken(text.trim());
      }}>
        <label class="grow">Token <input type="password" autocomplete="off" value={text} onInput={(e) => set(e.currentTarget.value)} /></label>
        <button type="submit" class="primary" disabled={!text.trim()}>Sign in</button>
      </form>
    </Panel>
  );
}

render(<App />, document.getElementById("app")!);
