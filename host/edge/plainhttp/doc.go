// Package plainhttp serves entities under paths that people can type: commands,
// queries, states and the events of a type, without a Connect library.
//
// It also describes these paths as an OpenAPI document, which it makes from
// several calls for modules.
//
// It makes no decisions. A request becomes one call of the API, with the
// caller's headers and on the caller's connection, and passes all the checks of
// such a call: authentication, roles, limits and the audit log. The body is read
// only after the call was admitted. The response is converted to plain HTTP.
//
// The only goroutine that it starts keeps an idle stream of events alive, and
// ends before the request does.
package plainhttp
