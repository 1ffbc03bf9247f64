// Package traces makes spans for requests. Each request with a sampled trace
// gets a span on the node that carries the request out. The span is called
// entity TYPE/COMMAND, and its children show what the request waited for. A
// message starts a trace of its own, linked to the span of the command that
// sent the message. For an unsampled request the cost is one check of a
// field.
//
// A Provider sends spans to a collector by OTLP over HTTP. Ended spans wait in
// one bounded queue; if it is full, spans are dropped and counted. The
// goroutine of the queue sends the spans and ends in Close. Only Close waits
// for the collector, for at most three seconds.
package traces
