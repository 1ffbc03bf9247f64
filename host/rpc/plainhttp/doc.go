// Package plainhttp serves entities under paths that a person types: commands,
// queries, states and the events of a type, without a library of Connect.
//
// It decides nothing. A request becomes one call of the API, with the caller's
// headers and on the caller's connection, and passes everything that such a
// call passes: who calls, what they may do, how much, and what is written of
// it. The body is read only once the call has been let in. What comes back is
// given the form of HTTP.
//
// It starts no goroutine but the one that keeps an idle stream of events alive,
// which ends before the request does.
package plainhttp
