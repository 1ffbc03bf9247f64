package gossip

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding/membership"
)

func TestJoinThroughAnySeed(t *testing.T) {
	for n := 3; n <= 7; n++ {
		for seed := 1; seed <= n; seed++ {
			if testing.Short() && (n%2 == 0 || seed > 1 && seed < n) {
				continue
			}
			inBubble(t, func(w *world) {
				for i := 1; i <= n; i++ {
					w.start(i, 1, seeds(seed))
				}
				w.allSee(upTo(n), 30*time.Second)
				p := w.nodes[1].Nodes()[0]
				if p.Address != address(2) || p.Disk != "disk2" || p.Cluster != "c1" {
					t.Errorf("n1 sees %+v", p)
				}
			})
		}
	}
}

// Nodes whose seeds form a chain become one cluster, because gossip spreads the
// names.
func TestJoinThroughAChain(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := 5; i >= 1; i-- {
			w.start(i, 1, seeds(i-1))
		}
		w.allSee(upTo(5), 30*time.Second)
	})
}

func TestCrashIsDetected(t *testing.T) {
	for n := 3; n <= 7; n += 2 {
		inBubble(t, func(w *world) {
			for i := 1; i <= n; i++ {
				w.start(i, 1, seeds(1, 2))
			}
			w.allSee(upTo(n), 30*time.Second)
			changed := w.nodes[1].Changes()
			w.crash(n)
			want := upTo(n)
			delete(want, n)
			for i := 1; i < n; i++ {
				took := w.until(i, fmt.Sprintf("%s n%d.1(lost)", others(i, want), n), 20*time.Second)
				t.Logf("%d nodes: n%d saw it after %v more", n, i, took)
			}
			select {
			case <-changed:
			default:
				t.Error("nobody was told")
			}
		})
	}
}

// A frozen node is considered lost, and counts as alive again when it
// continues.
func TestFrozenNodeIsAliveAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := 1; i <= 3; i++ {
			w.start(i, 1, seeds(1))
		}
		w.allSee(upTo(3), 10*time.Second)
		w.net.Host(host(3)).Freeze()
		w.until(1, "n2.1 n3.1(lost)", 20*time.Second)
		time.Sleep(2 * time.Minute)
		w.net.Host(host(3)).Thaw()
		w.allSee(upTo(3), 30*time.Second)
	})
}

// A starved node that runs for half a second and then stops for three seconds
// stays alive. The recipients of gossip are random, so in a few of forty rounds
// it may be considered lost, but not for long.
func TestStarvedNodeDoesNotFlap(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := 1; i <= 5; i++ {
			w.start(i, 1, seeds(1))
		}
		w.allSee(upTo(5), 30*time.Second)
		const rounds = 40
		lost := 0
		for range rounds {
			w.net.Host(host(5)).Freeze()
			time.Sleep(3 * time.Second)
			w.net.Host(host(5)).Thaw()
			stays := true
			for range 5 {
				time.Sleep(100 * time.Millisecond)
				for i := range w.nodes {
					stays = stays && w.sees(i) == others(i, upTo(5))
				}
			}
			if !stays {
				lost++
			}
		}
		if lost > rounds/10 {
			t.Errorf("a node was lost in %d of %d rounds", lost, rounds)
		}
		w.allSee(upTo(5), 30*time.Second)
	})
}

// A node restarts under its ID with a newer incarnation, at once or after the
// other nodes have forgotten it, at the same address or at a different address.
func TestRestart(t *testing.T) {
	for _, pause := range []time.Duration{0, 2 * time.Second, time.Minute} {
		inBubble(t, func(w *world) {
			for i := 1; i <= 3; i++ {
				w.start(i, 1, seeds(1, 2, 3))
			}
			w.allSee(upTo(3), 10*time.Second)
			w.crash(3)
			time.Sleep(pause)
			w.start(3, 2, seeds(1, 2, 3))
			w.allSee(map[int]uint64{1: 1, 2: 1, 3: 2}, 10*time.Second)
			// The failure of the older incarnation must no longer have an effect.
			time.Sleep(time.Minute)
			w.allSee(map[int]uint64{1: 1, 2: 1, 3: 2}, 0)
		})
	}
}

func TestRestartElsewhere(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := 1; i <= 3; i++ {
			w.start(i, 1, seeds(1))
		}
		w.allSee(upTo(3), 10*time.Second)
		w.crash(3)
		w.start(4, 2, seeds(1), func(o *membership.Options) { o.Node = id(3) })
		for _, i := range []int{1, 2} {
			w.until(i, fmt.Sprintf("n%d.1 n3.2", 3-i), 10*time.Second)
			if p := w.nodes[i].Nodes()[1]; p.Address != address(4) {
				t.Errorf("n%d looks for n3 at %s", i, p.Address)
			}
		}
	})
}

// namedTransport resolves the addresses that it dials.
type namedTransport struct {
	membership.Transport
	resolve func(string) string
}

func (n namedTransport) Dial(ctx context.Context, address string) (net.Conn, error) {
	return n.Transport.Dial(ctx, n.resolve(address))
}

// A node that has announced a host name comes back at a new address under the
// same name, long after gossip has forgotten it. It has no seeds, so the other
// nodes must find it by its name.
func TestNodeIsFoundByItsName(t *testing.T) {
	inBubble(t, func(w *world) {
		var at atomic.Int64
		at.Store(3)
		named := func(o *membership.Options) {
			o.Lookup.Host = func(_ context.Context, name string) ([]string, error) {
				if name != "third.test" {
					return nil, fmt.Errorf("no such host: %s", name)
				}
				return []string{host(int(at.Load()))}, nil
			}
			o.Transport = namedTransport{o.Transport, func(address string) string {
				return strings.Replace(address, "third.test", host(int(at.Load())), 1)
			}}
		}
		third := func(o *membership.Options) { o.Node, o.Address = id(3), "third.test:7000" }
		w.start(1, 1, seeds(1), named)
		w.start(2, 1, seeds(1), named)
		w.start(3, 1, seeds(1), named, third)
		w.allSee(upTo(3), 10*time.Second)
		w.crash(3)
		w.until(1, "n2.1 n3.1(lost)", time.Minute)
		time.Sleep(10 * time.Minute)
		at.Store(4)
		w.start(4, 2, named, third)
		for _, i := range []int{1, 2} {
			w.until(i, fmt.Sprintf("n%d.1 n3.2", 3-i), time.Minute)
		}
	})
}

// In whatever order all nodes stop and start, they find each other, also if
// only one of two seeds comes back.
func TestAllRestartInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		n := 3 + rng.IntN(5)
		inBubble(t, func(w *world) {
			for i := 1; i <= n; i++ {
				w.start(i, 1, seeds(1, 2))
			}
			w.allSee(upTo(n), 30*time.Second)
			for _, i := range rng.Perm(n) {
				w.crash(i + 1)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(time.Minute))))
			want := map[int]uint64{}
			for _, i := range rng.Perm(n) {
				if i == 0 && round%2 == 0 {
					continue // the first seed stays down
				}
				want[i+1] = 2
				w.start(i+1, 2, seeds(1, 2))
				time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
			}
			w.allSee(want, 30*time.Second)
		})
	}
}

// Nodes with a different label, key or cluster ID neither see the other nodes
// nor are seen by them, although they know the seeds.
func TestNodesOfOtherClustersAreIgnored(t *testing.T) {
	key := []byte("0123456789abcdef")
	for name, change := range map[string]setting{
		"label":   func(o *membership.Options) { o.Label = "other" },
		"key":     func(o *membership.Options) { o.Key = []byte("fedcba9876543210") },
		"no key":  func(o *membership.Options) { o.Key = nil },
		"cluster": func(o *membership.Options) { o.Cluster = "c2" },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				keyed := func(o *membership.Options) { o.Key = key }
				for i := 1; i <= 3; i++ {
					w.start(i, 1, seeds(1, 2, 3), keyed)
				}
				w.start(4, 1, seeds(1, 2, 3), keyed, change)
				time.Sleep(2 * time.Minute)
				for i := 1; i <= 3; i++ {
					if got, want := w.sees(i), others(i, upTo(3)); got != want {
						t.Errorf("n%d sees %q, wanted %q", i, got, want)
					}
				}
				if got := w.sees(4); got != "" {
					t.Errorf("n4 sees %q", got)
				}
			})
		})
	}
}

// A node that belongs to no cluster sees the other nodes and is seen by them.
// Once it belongs to a different cluster, they no longer see it.
func TestNodeWithoutClusterIsSeen(t *testing.T) {
	for _, cluster := range []string{"c1", "c2"} {
		inBubble(t, func(w *world) {
			for i := 1; i <= 2; i++ {
				w.start(i, 1, seeds(1))
			}
			joiner := w.start(3, 1, seeds(1), func(o *membership.Options) { o.Cluster = "" })
			w.allSee(upTo(3), 10*time.Second)
			if err := joiner.SetCluster(cluster); err != nil {
				t.Fatal(err)
			}
			if cluster == "c2" {
				w.until(3, "", time.Second)
				return
			}
			for began := time.Now(); w.nodes[1].Nodes()[1].Cluster != cluster; time.Sleep(100 * time.Millisecond) {
				if time.Since(began) > 10*time.Second {
					t.Fatal("n1 did not learn the cluster of n3")
				}
			}
		})
	}
}

// Both halves of a long partition find each other after it is healed, although
// only one half has the seeds.
func TestPartitionHeals(t *testing.T) {
	for _, length := range []time.Duration{3 * time.Second, 20 * time.Second, 10 * time.Minute} {
		inBubble(t, func(w *world) {
			for i := 1; i <= 5; i++ {
				w.start(i, 1, seeds(1))
			}
			w.allSee(upTo(5), 30*time.Second)
			w.net.Partition([]string{host(1), host(2)}, []string{host(3), host(4), host(5)})
			if length > 15*time.Second {
				w.until(1, "n2.1 n3.1(lost) n4.1(lost) n5.1(lost)", time.Minute)
				w.until(5, "n1.1(lost) n2.1(lost) n3.1 n4.1", time.Minute)
			}
			time.Sleep(length)
			w.net.HealAll()
			w.allSee(upTo(5), 30*time.Second)
		})
	}
}

// The seed through which all nodes joined is gone permanently, and neither half
// of the partition has another seed. The halves find each other because their
// nodes remember each other's addresses.
func TestPartitionHealsWithoutSeeds(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := 1; i <= 6; i++ {
			w.start(i, 1, seeds(6))
		}
		w.allSee(upTo(6), 30*time.Second)
		w.crash(6)
		w.net.Partition([]string{host(1), host(2)}, []string{host(3), host(4), host(5)})
		time.Sleep(10 * time.Minute)
		w.net.HealAll()
		for i := 1; i <= 5; i++ {
			w.until(i, others(i, upTo(5))+" n6.1(lost)", time.Minute)
		}
	})
}

// If one direction of the link between two nodes is cut, both nodes stay alive,
// because the third node probes on behalf of both.
func TestOneWayPartitionKeepsNodesAlive(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := 1; i <= 3; i++ {
			w.start(i, 1, seeds(1))
		}
		w.allSee(upTo(3), 10*time.Second)
		w.net.Cut(host(1), host(2))
		for range 60 {
			time.Sleep(time.Second)
			w.allSee(upTo(3), 0)
		}
		w.net.HealAll()
		w.allSee(upTo(3), 0)
	})
}

func TestLeave(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := 1; i <= 3; i++ {
			w.start(i, 1, seeds(1))
		}
		w.allSee(upTo(3), 10*time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.nodes[3].Leave(ctx); err != nil {
			t.Errorf("leave: %v", err)
		}
		w.stop(3)
		for i := 1; i <= 2; i++ {
			took := w.until(i, fmt.Sprintf("n%d.1 n3.1(left)", 3-i), 3*time.Second)
			t.Logf("n%d saw it after %v", i, took)
		}
		w.start(3, 2, seeds(1))
		w.allSee(map[int]uint64{1: 1, 2: 1, 3: 2}, 10*time.Second)
	})
}

// A seed that is a DNS name stands for all its addresses at the time of each
// attempt.
func TestSeedNameResolvesToAllAddresses(t *testing.T) {
	for _, seed := range []string{"cluster.test:7000", "srv+_hostd._tcp.cluster.test"} {
		t.Run(seed, func(t *testing.T) { seedIsAName(t, seed) })
	}
}

func seedIsAName(t *testing.T, seed string) {
	inBubble(t, func(w *world) {
		var known atomic.Pointer[[]string]
		known.Store(&[]string{host(9)}) // an address at which no node listens
		named := func(o *membership.Options) {
			o.Seeds = []string{seed}
			o.Lookup.Host = func(_ context.Context, name string) ([]string, error) {
				if name != "cluster.test" {
					return nil, fmt.Errorf("no such host: %s", name)
				}
				return *known.Load(), nil
			}
			o.Lookup.SRV = func(_ context.Context, name string) (out []*net.SRV, err error) {
				if name != "_hostd._tcp.cluster.test" {
					return nil, fmt.Errorf("no such host: %s", name)
				}
				for _, a := range *known.Load() {
					out = append(out, &net.SRV{Target: a + ".", Port: 7000})
				}
				return out, nil
			}
		}
		w.net.Host(host(9))
		for i := 1; i <= 3; i++ {
			w.start(i, 1, named)
		}
		time.Sleep(10 * time.Second)
		if got := w.sees(1); got != "" {
			t.Errorf("n1 sees %q", got)
		}
		known.Store(&[]string{host(9), host(2), host(3)})
		w.allSee(upTo(3), 10*time.Second)
	})
}
