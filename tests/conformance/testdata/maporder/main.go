// Maporder is a guest with a fault: its state depends on the iteration order of
// a map.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

type bag struct {
	Items map[string]int `json:"items"`
	First string         `json:"first"`
}

type put struct {
	Item string `json:"item"`
}

var _ = hostd.Serve("maporder", "1.0.0", declare())

func declare() *hostd.Type[bag] {
	t := hostd.Entity[bag]("bag", hostd.JSON)
	t.Initial(func() bag { return bag{Items: map[string]int{}} })
	hostd.Event(t, "put", func(s *bag, e put) {
		s.Items[e.Item]++
		for item := range s.Items {
			s.First = item
			break
		}
	})
	hostd.Command(t, "put", func(c *hostd.Context, _ *bag, cmd put) (hostd.None, error) {
		c.Emit(cmd)
		return hostd.None{}, nil
	})
	return t
}

func main() {}
