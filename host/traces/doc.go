// Package traces makes spans of what requests do: one for each that is carried
// out on the node and whose trace is sampled, named entity TYPE/COMMAND, with
// children for what it waited for. That of a message begins a trace of its own,
// with a link to the span of the command that made the message. Of any other
// request it costs one look at a field.
//
// A Provider sends spans to a collector, by OTLP over HTTP. Spans that have ended
// wait in one queue of bounded length; beyond it they are dropped and counted. The
// queue's goroutine sends them, and ends in Close. Nothing waits for the collector
// except Close, for three seconds.
package traces
