// Package traces makes spans of what requests do: one for each that is carried
// out on the node and whose trace is sampled, named entity TYPE/COMMAND, with
// children for what it waited for. That of a message begins a trace of its own,
// with a link to the span of the command that made the message. Of any other
// request it costs one look at a field.
//
// It decides nothing, keeps no queue and starts no goroutine; where spans go is
// the tracer's business.
package traces
