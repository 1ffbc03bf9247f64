// The functions that the host calls. The entry file of a guest must export
// them:
//
//   export * from "hostd-exports";

import { answerQuery, applyEvents, buffer, describeModule, dropEntity, handleCommand, loadEntity, snapshotOf, upcastEvents } from "./hostd";

export function hostd_abi(): i32 {
  return 1;
}

export function hostd_describe(): u64 {
  return describeModule();
}

export function hostd_buffer(size: u32): usize {
  return buffer(size);
}

export function hostd_load(type: i32, entity: u64, length: i32): i32 {
  return loadEntity(type, entity, length);
}

export function hostd_apply(entity: u64, length: i32): i32 {
  return applyEvents(entity, length);
}

export function hostd_handle(entity: u64, length: i32): u64 {
  return handleCommand(entity, length);
}

export function hostd_query(entity: u64, length: i32): u64 {
  return answerQuery(entity, length);
}

export function hostd_snapshot(entity: u64): u64 {
  return snapshotOf(entity);
}

export function hostd_drop(entity: u64): void {
  dropEntity(entity);
}

export function hostd_upcast(type: i32, length: i32): u64 {
  return upcastEvents(type, length);
}
