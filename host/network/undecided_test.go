package network

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// from is a connection with a remote address.
type from struct {
	net.Conn
	address string
	number  int
}

func (f *from) RemoteAddr() net.Addr { return f }
func (f *from) Network() string      { return "test" }
func (f *from) String() string       { return f.address + ":1" }

// The ranks agree with a linear search: the connection that is cut is the
// oldest of an address that has the most.
func TestUndecidedConnectionsAreEvictedByAddress(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var u undecided
		var open []*pending
		for i := range 2000 {
			switch n := rng.IntN(10); {
			case n < 5:
				open = append(open, u.add(&from{address: fmt.Sprint("h", rng.IntN(1+rng.IntN(8))), number: i}))
			case n < 8 && len(open) > 0:
				k := rng.IntN(len(open))
				u.remove(open[k])
				u.remove(open[k])
				open = append(open[:k], open[k+1:]...)
			case len(open) > 0:
				count, most := map[string]int{}, 0
				for _, p := range open {
					a := p.conn.(*from).address
					count[a]++
					most = max(most, count[a])
				}
				got := u.cut().(*from)
				if count[got.address] != most {
					t.Fatalf("seed %d: one of %s is cut, which has %d, the most are %d", seed, got.address, count[got.address], most)
				}
				for k, p := range open {
					if p.conn.(*from).address == got.address {
						if p.conn != net.Conn(got) {
							t.Fatalf("seed %d: %d is cut, %d is older", seed, got.number, p.conn.(*from).number)
						}
						open = append(open[:k], open[k+1:]...)
						break
					}
				}
			}
			if u.count != len(open) {
				t.Fatalf("seed %d: %d are counted, %d are open", seed, u.count, len(open))
			}
		}
		for _, p := range open {
			u.remove(p)
		}
		if u.count != 0 || len(u.by) != 0 || u.highest != 0 {
			t.Errorf("seed %d: %d of %d addresses are left", seed, u.count, len(u.by))
		}
	}
}
