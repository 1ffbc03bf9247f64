package staledisk

import (
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/sharding"
)

func TestMajorityOfVotersPasses(t *testing.T) {
	voters := []sharding.NodeID{"n1", "n2", "n3"}
	s := Start{Node: "n1", Attested: 5, Requested: 9}
	for _, c := range []struct {
		name    string
		voters  []sharding.NodeID
		answers []Answer
		want    Result
	}{
		{"no answers", voters, nil, Pending},
		{"one of two others knows no start", voters, []Answer{{From: "n2"}}, Passed},
		{"nonvoters do not count", voters, []Answer{{From: "n4"}, {From: "n5"}}, Pending},
		{"the previous start is known", voters, []Answer{{From: "n3", Latest: 5}}, Passed},
		{"this start is known", voters, []Answer{{From: "n3", Latest: 9}}, Passed},
		{"a later start is known", voters, []Answer{{From: "n3", Latest: 6}}, Stale},
		{"a start after this one is known", voters, []Answer{{From: "n3", Latest: 10}}, Stale},
		{"a nonvoter knows a later start", voters, []Answer{{From: "n4", Latest: 6}}, Stale},
		{"the voters have changed", voters, []Answer{{From: "n2", Index: 7, Voters: []sharding.NodeID{"n2", "n4", "n5"}}}, Pending},
		{"a majority of the new voters answers", voters, []Answer{
			{From: "n2", Index: 7, Voters: []sharding.NodeID{"n2", "n4", "n5"}}, {From: "n5", Index: 3, Voters: voters},
		}, Passed},
		{"it is the only voter", []sharding.NodeID{"n1"}, nil, Passed},
		{"no voters are known", nil, []Answer{{From: "n2"}}, Pending},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := New(s, 6, c.voters)
			for _, a := range c.answers {
				p.AddAnswer(a)
			}
			if p.Result() != c.want {
				t.Errorf("got %v, want %v", p.Result(), c.want)
			}
		})
	}
}

// Nodes start, crash between any two steps, are restored from copies, and ask a
// majority. Every directory that the check reports as stale is stale. No node
// votes with a stale directory as long as one of the answering nodes has
// recorded a later incarnation.
func TestStaleDisksAreDetected(t *testing.T) {
	type dir struct{ clock, vouched, asked uint64 }
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		names := []sharding.NodeID{"a", "b", "c", "d", "e"}[:3+2*r.IntN(2)]
		dirs, witnesses := map[sharding.NodeID]*dir{}, map[sharding.NodeID]Witness{}
		for _, n := range names {
			dirs[n], witnesses[n] = &dir{}, Witness{}
		}
		subject := names[0]
		var copies []dir
		restored := false  // restored from a copy since it last voted
		voted := uint64(0) // the requested incarnation of the subject's last process that voted
		now := uint64(0)   // the wall clock
		for range 40 {
			d := dirs[subject]
			if r.IntN(5) == 0 {
				copies = append(copies, *d)
			}
			if len(copies) > 0 && r.IntN(6) == 0 {
				restored = true
				*d = copies[r.IntN(len(copies))]
			}
			now += 1 + r.Uint64N(9)
			d.clock = max(d.clock+1, now)
			older := d.vouched < voted && d.asked != voted // a copy made during the last incarnation cannot be detected
			if d.asked <= d.vouched {
				d.asked = d.clock
			}
			s := Start{Node: subject, Attested: d.vouched, Requested: d.asked}
			p, told := New(s, 1, names), false
			for _, i := range r.Perm(len(names) - 1) {
				from := names[i+1]
				knew := witnesses[from][subject] == voted // the last incarnation that it recorded
				known, record := witnesses[from].Evaluate(s, 0)
				if record {
					witnesses[from] = witnesses[from].Record(s)
				}
				if r.IntN(4) == 0 {
					continue // the answer is lost
				}
				told = told || knew && p.Result() == Pending
				p.AddAnswer(Answer{From: from, Latest: known})
				if r.IntN(10) == 0 {
					break // the node crashes
				}
			}
			switch p.Result() {
			case Passed:
				if older && told {
					t.Fatalf("seed %d: an older copy passed: %+v, voted %v", seed, *d, voted)
				}
				if r.IntN(4) == 0 {
					continue // the node crashes before it can store the result
				}
				d.vouched = d.clock
				voted, restored = d.asked, false
			case Stale:
				if !restored && !older {
					t.Fatalf("seed %d: %+v was taken for an older copy, voted %v", seed, *d, voted)
				}
				// The node's replicas are lost, and it starts over with an empty disk.
				now += 100
				*d = dir{clock: now}
				d.vouched, copies, voted, restored = d.clock, nil, 0, false
				for _, n := range names {
					witnesses[n][subject] = min(witnesses[n][subject], d.vouched)
				}
			}
		}
	}
}
