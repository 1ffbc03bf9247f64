package main

import "os"

// notifyState does nothing, because Windows has no such signal.
func notifyState(chan<- os.Signal) {}
