package entity

// A durable-state entity has no events of its own: what a command stores is
// the whole state, as one event whose type is stateEvent, so that the sequence
// is the state's revision, and the chain, apply and replication are those of
// every entity. A load hands the last one to the guest as it does a snapshot.

// stateEvent is the type of the event that carries a durable state.
const stateEvent = "state"
