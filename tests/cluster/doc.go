// Package cluster runs the program as its users do, as processes that are
// killed and started again under load, and checks from outside that what was
// acknowledged is there, once and in order. It has tests only; each test ends
// the processes that it started.
package cluster
