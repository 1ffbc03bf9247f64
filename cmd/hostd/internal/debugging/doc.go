// Package debugging has the commands for authors of entities: they follow the
// log lines of guests, download an entity's history, and step through it
// locally.
package debugging
