// Package compile is what surrounds the compilation of a module from outside:
// the child process that it happens in, with the order that it is given and
// the limits that it has, and the directory of what was compiled, each
// file sealed with a key, and the names of the modules that passed their trial.
//
// It never compiles or tries a module itself: that is told to it as a function,
// so that it has no runtime. It owns no goroutine.
package compile
