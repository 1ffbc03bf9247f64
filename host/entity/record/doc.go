// Package record makes the record of one command of what its guest has put out.
//
// It knows neither the entity nor the log. It has no goroutine, and a Builder
// serves one.
package record
