export * from "./core.js";
export * from "./entities.js";
export * from "./rpc.js";
export * from "./value.js";
export * as cluster from "./gen/hostd/cluster/v1/cluster_pb.js";
export * as entity from "./gen/hostd/entity/v1/entity_pb.js";
export * as journal from "./gen/hostd/journal/v1/journal_pb.js";
export * as module from "./gen/hostd/module/v1/module_pb.js";
