// Package status is what callers of the API are told of errors: the code of
// each, its text and its details. An error that ends a request has its code in
// package request. Every other one has it where it is defined: it is an *Error,
// or Coded. What has no code is a fault of ours, whose text callers never see.
//
// It starts no goroutine.
package status
