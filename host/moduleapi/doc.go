// Package moduleapi implements the ModuleService of a node: modules are uploaded,
// listed, activated, compared with the stored entities of a type, verified,
// rolled back and rolled out to a part of a type's entities.
//
// Handler maps the API's messages to the interfaces in Options, and forwards
// questions about stored entities to the leaders of their shards. Parts implements
// the interfaces on a running node; tests use fakes.
//
// The package decides neither which module serves a type nor what an entity's
// state is. A call owns the goroutines that it starts and joins them before it
// returns.
package moduleapi
