// Package schema checks JSON text against JSON Schema 2020-12: a schema is
// compiled once, and a check then walks the text without building a tree.
//
// It supports the keywords that can be checked in one pass in bounded time, and
// rejects a schema with any other keyword, which the error names. It fetches
// nothing: references point into the schema or the module's $defs. It starts no
// goroutine, and a compiled schema is safe for concurrent use.
package schema
