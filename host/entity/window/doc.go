// Package window is what an entity remembers of the commands that it has
// carried out, so that one that is tried again has its effect once: a window
// bounded in number, bytes and age, a filter of the ids that a snapshot carries
// in its place, and how far back a retry may reach.
//
// What is in a window is a function of the entity's records and of Limits. It
// never reads a clock, and starts no goroutine. A Window serves one goroutine.
package window
