// Its lines are told by faults, as those of TypeScript are.
export function broken(state) {
  return state.none.of.this;
}
