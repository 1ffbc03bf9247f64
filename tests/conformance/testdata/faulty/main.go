// Faulty is a guest with a command for each way in which a runtime with
// goroutines, a heap and an exit can fail.
package main

import (
	"os"
	"runtime"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

type state struct {
	Count int `json:"count"`
}

type counted struct{}

// kept keeps the allocations of the command allocate alive.
var kept [][]byte

func declare() *hostd.Type[state] {
	t := hostd.Entity[state]("faulty", hostd.JSON)
	hostd.Event(t, "counted", func(s *state, _ counted) { s.Count++ })
	for name, do := range map[string]func(){
		"count":    func() {},
		"spin":     func() { spin() },
		"leave":    func() { go spin(); runtime.Gosched() },
		"select":   func() { select {} },
		"recurse":  func() { recurse(1) },
		"allocate": func() { allocate() },
		"exit":     func() { os.Exit(3) },
		"panic":    func() { panic("on purpose") },
		"flood":    func() { flood() },
	} {
		hostd.Command(t, name, func(c *hostd.Context, s *state, _ hostd.None) (state, error) {
			c.Emit(counted{})
			do()
			return *s, nil
		})
	}
	return t
}

func spin() {
	for {
	}
}

//go:noinline
func recurse(n int) int { return recurse(n+1) + n }

func allocate() {
	for {
		kept = append(kept, make([]byte, 1<<20))
	}
}

func flood() {
	for range 10_000 {
		os.Stdout.WriteString("a line that nobody wants\n")
	}
}

var _ = hostd.Serve("faulty", "1.0.0", declare())

func main() {}
