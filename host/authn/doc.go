// Package authn says who calls: it makes a Principal of the credential that a
// request carries, before anything of the request's body is read. It never says
// what a principal may do.
//
// An Authenticator has one goroutine, Run, which is its owner's: it reads the
// files of credentials and keys again when they change, asks the provider of
// keys, and ends streams whose credential has ended. The tokens that the
// cluster keeps are given to it.
package authn
