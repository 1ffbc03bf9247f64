package peer_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
)

var seeds = flag.Int("seeds", 10, "how many runs of the chaos test")

// Links are cut, broken and delayed, and nodes are frozen and killed. A frame
// must arrive once or not at all, frames of one sender must arrive in the order
// in which they were sent, and once everything is healed, all frames must
// arrive again.
func TestChaos(t *testing.T) {
	runs := uint64(*seeds)
	if testing.Short() {
		runs = min(runs, 3)
	}
	for seed := range runs {
		if t.Failed() {
			break
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, "n0 n1 n2 n3", func(b *bubble) {
				c := &chaos{bubble: b, rng: rand.New(rand.NewPCG(seed, 1)), starts: map[string]uint64{}}
				for range 150 {
					c.step()
				}
				c.heal()
				for _, from := range b.nodes {
					for _, to := range b.nodes {
						if from != to {
							b.carries(from, to)
						}
					}
				}
				c.check()
			})
		})
	}
}

type chaos struct {
	*bubble
	rng    *rand.Rand
	starts map[string]uint64 // number of restarts of each node
	sent   int
	dead   []*node
}

// two returns two different nodes.
func (c *chaos) two() (string, string) {
	i := c.rng.IntN(4)
	return fmt.Sprint("n", i), fmt.Sprint("n", (i+1+c.rng.IntN(3))%4)
}

func (c *chaos) step() {
	a, b := c.two()
	switch c.rng.IntN(9) {
	case 0:
		c.net.Cut(a, b)
	case 1:
		c.net.Heal(a, b)
	case 2:
		c.net.Break(a, b)
	case 3:
		c.net.Host(a).Freeze()
	case 4:
		c.net.Host(a).Thaw()
	case 5:
		c.net.Delay(a, b, time.Duration(c.rng.IntN(400))*time.Millisecond)
	case 6:
		if c.rng.IntN(4) == 0 {
			c.restart(a)
		}
	default:
		c.send()
	}
	time.Sleep(time.Duration(c.rng.ExpFloat64() * float64(300*time.Millisecond)))
}

// send sends a burst from every node to every node.
func (c *chaos) send() {
	for range c.rng.IntN(50) {
		a, b := c.two()
		size := 1 + c.rng.IntN(200)
		if c.rng.IntN(20) == 0 {
			size = c.rng.IntN(1 << 20)
		}
		c.sent++
		frame := fmt.Appendf(nil, "%d %s.%d ", c.sent, a, c.starts[a])
		c.nodes[sharding.NodeID(a)].Send(sharding.NodeID(b), append(frame, make([]byte, size)...))
	}
}

func (c *chaos) restart(name string) {
	d := c.nodes[sharding.NodeID(name)]
	c.net.Host(name).Thaw()
	c.kill(d)
	c.dead = append(c.dead, d)
	c.starts[name]++
	c.start(name, 1+c.starts[name])
	var all []*node
	for _, d := range c.nodes {
		all = append(all, d)
	}
	connectAll(all...)
}

func (c *chaos) heal() {
	c.net.HealAll()
	for i := range 4 {
		c.net.Host(fmt.Sprint("n", i)).Thaw()
		for j := range 4 {
			c.net.Delay(fmt.Sprint("n", i), fmt.Sprint("n", j), 0)
		}
	}
	c.meet()
}

// check checks the frames that arrived at every node, including nodes that were
// killed.
func (c *chaos) check() {
	arrived := 0
	for _, d := range c.nodes {
		c.dead = append(c.dead, d)
	}
	for _, d := range c.dead {
		last := map[string]int{} // last number by the sender's incarnation
		for _, f := range d.frames {
			var number int
			var sender string
			if _, err := fmt.Sscanf(f.data, "%d %s ", &number, &sender); err != nil {
				continue // carries sent this frame
			}
			arrived++
			if sender[:2] != string(f.from) {
				c.Errorf("%s got a frame of %s from %s", d.id, sender, f.from)
			}
			if number <= last[sender] {
				c.Errorf("%s got frame %d of %s after %d", d.id, number, sender, last[sender])
			}
			last[sender] = number
		}
	}
	c.Logf("%d of %d frames arrived, %d restarts", arrived, c.sent, len(c.dead)-len(c.nodes))
	if arrived == 0 {
		c.Error("nothing arrived")
	}
}
