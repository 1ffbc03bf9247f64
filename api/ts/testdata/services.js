// Calls services at a fake cluster. Prints the outcome as JSON.
import { HostdError, Transport, entity, module, service } from "./dist/index.js";

const [, , what, ...addresses] = process.argv;
const transport = new Transport(addresses, { minBackoffMs: 1, maxBackoffMs: 5, attemptMs: 60_000, timeoutMs: 60_000 });
const entities = service(entity.EntityService, transport);
const modules = service(module.ModuleService, transport);
const out = {};

try {
  switch (what) {
    case "list":
      out.digests = (await modules.listModules()).modules.map((m) => m.digest);
      break;
    case "activate":
      out.revision = String((await modules.activateModule({ entityType: "account", digest: "0".repeat(64) })).revision);
      break;
    case "send": {
      const m = await entities.sendCommand({ entityType: "account", entityId: "a", command: "open", firstAttemptAge: { seconds: 5n, nanos: 0 } });
      out.sequence = String(m.sequence);
      out.streams = ["sendStream" in entities, "uploadStream" in modules, "readEvents" in entities];
      break;
    }
    case "subscribe":
      out.sequences = [];
      for await (const m of entities.subscribeEvents({ entityType: "account", partialCursors: true })) out.sequences.push(String(m.sequence));
      break;
  }
} catch (e) {
  if (!(e instanceof HostdError)) throw e;
  out.code = e.code;
}
process.stdout.write(JSON.stringify(out));
