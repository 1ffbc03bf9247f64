// Faults name its lines, like the lines of TypeScript.
export function broken(state) {
  return state.none.of.this;
}
