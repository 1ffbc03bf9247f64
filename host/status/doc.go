// Package status maps errors to what callers of the API get: a code, a text and
// details. The code of an error that ends a request is defined in package
// request. Every other public error defines its own code: it is an *Error, or
// implements Coded. An error without a code is an internal error, whose text
// callers never see.
//
// It starts no goroutine.
package status
