// Package taillogs answers the API's calls about the lines that guests write:
// those of a type on all nodes, and those that come. What a node keeps of them
// is for guestlines to say.
package taillogs
