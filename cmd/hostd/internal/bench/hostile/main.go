// The module that hostd bench runs against its neighbours on a node: each of
// its commands exceeds one of the limits of a guest.
package main

import (
	"strings"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// Nothing is the state.
type Nothing struct{}

// Happened is the event.
type Happened struct {
	Filling string `json:"filling"`
}

// Filled is the reply.
type Filled struct {
	Filling string `json:"filling"`
}

var kept [][]byte

// down recurses forever.
func down(n uint64) uint64 {
	if n == 1<<63 {
		return n
	}
	return down(n+1) + 1
}

// Bomb is the entity.
func Bomb() *hostd.Type[Nothing] {
	t := hostd.Entity[Nothing]("bench-bomb", hostd.JSON)
	hostd.Event(t, "happened", func(*Nothing, Happened) {})
	command := func(name string, do func(c *hostd.Context) string) {
		hostd.Command(t, name, func(c *hostd.Context, _ *Nothing, _ hostd.None) (Filled, error) { return Filled{do(c)}, nil })
	}
	command("loop", func(*hostd.Context) string {
		for n := uint64(0); ; n++ {
			if n == 1<<63 {
				return ""
			}
		}
	})
	command("memory", func(*hostd.Context) string {
		for {
			kept = append(kept, make([]byte, 1<<20))
		}
	})
	command("recursion", func(*hostd.Context) string {
		if down(0) == 1 {
			return "."
		}
		return ""
	})
	command("goroutines", func(*hostd.Context) string {
		for range 8 {
			go func() {
				for n := uint64(0); n < 1<<63; n++ {
				}
			}()
		}
		select {}
	})
	command("leak", func(*hostd.Context) string {
		go func() {
			for n := uint64(0); n < 1<<63; n++ {
			}
		}()
		return ""
	})
	command("block", func(*hostd.Context) string { select {} })
	command("events", func(c *hostd.Context) string {
		for {
			c.Emit(Happened{"one of many"})
		}
	})
	command("reply", func(*hostd.Context) string { return strings.Repeat("x", 3<<20) })
	return t
}

var _ = hostd.Serve("bench-hostile", "1.0.0", Bomb())

func main() {}
