//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyState relays the signal that asks for the state of the node, SIGUSR1.
func notifyState(to chan<- os.Signal) { signal.Notify(to, syscall.SIGUSR1) }
