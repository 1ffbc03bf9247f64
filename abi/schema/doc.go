// Package schema checks JSON text against JSON Schema 2020-12: a schema is
// compiled once, and a check then walks the text without building a tree.
//
// It takes the keywords that can be checked in one walk in bounded time, and
// refuses a schema with others by name. It fetches nothing: references lead
// into the schema or the module's $defs. It starts no goroutine, and a compiled
// schema is safe for concurrent use.
package schema
