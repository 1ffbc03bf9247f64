package placement_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/placement"
)

// parse reads a state from lines: "node a", "node a zone=z", "node a nohost
// nolead", "shard 1 a b c leader=a able=b,c pinned".
func parse(text string) *placement.State {
	s := &placement.State{}
	for line := range strings.SplitSeq(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if f[0] == "node" {
			n := placement.Node{ID: sharding.NodeID(f[1]), Hosts: !slices.Contains(f, "nohost"), Leads: !slices.Contains(f, "nolead")}
			for _, w := range f[2:] {
				if z, ok := strings.CutPrefix(w, "zone="); ok {
					n.Zone = z
				}
			}
			s.Nodes = append(s.Nodes, n)
			continue
		}
		var sh placement.Shard
		fmt.Sscan(f[1], &sh.ID)
		for _, w := range f[2:] {
			key, value, has := strings.Cut(w, "=")
			switch {
			case key == "leader":
				sh.Leader = sharding.NodeID(value)
			case key == "able":
				for n := range strings.SplitSeq(value, ",") {
					sh.Able = append(sh.Able, sharding.NodeID(n))
				}
			case key == "fixed":
				sh.Pinned = true
			case key == "pinned":
				sh.Pinned, sh.PinnedLeader = true, true
			case !has:
				sh.Replicas = append(sh.Replicas, sharding.NodeID(w))
			}
		}
		s.Shards = append(s.Shards, sh)
	}
	return s
}

func nodes(text string) (out []sharding.NodeID) {
	for _, n := range strings.Fields(text) {
		out = append(out, sharding.NodeID(n))
	}
	return out
}

func TestAllocate(t *testing.T) {
	tests := []struct {
		name, state, have string
		n                 int
		want              string
	}{
		{"ties by id", "node c\nnode a\nnode b", "", 2, "a b"},
		{"no more than there are", "node a\nnode b", "", 3, "a b"},
		{"not where it is", "node a\nnode b\nnode c", "b", 2, "a c"},
		{"not on those that do not host", "node a nohost\nnode b", "", 2, "b"},
		{"fewest replicas", "node a\nnode b\nnode c\nshard 1 a b", "", 1, "c"},
		{"then fewest leaders", "node a\nnode b\nshard 1 a b leader=a", "", 1, "b"},
		{"best leader first", "node a\nnode b\nnode c\nshard 1 a b leader=a", "", 3, "c b a"},
		{"zones before load", "node a zone=x\nnode b zone=x\nnode c zone=y\nshard 1 c\nshard 2 c\nshard 3 c", "", 2, "a c"},
		{"zone of what is there", "node a zone=x\nnode b zone=x\nnode c zone=y\nshard 1 c\nshard 2 c", "a", 1, "c"},
		{"full zones anyway", "node a zone=x\nnode b zone=x\nnode c zone=x", "", 3, "a b c"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := (placement.LeastLeaders{}).Allocate(parse(tt.state), nodes(tt.have), tt.n); !slices.Equal(got, nodes(tt.want)) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestEvict(t *testing.T) {
	tests := []struct{ name, state, have, keep, want string }{
		{"the newest of equals", "node a\nnode b", "a b", "", "b"},
		{"the fullest", "node a\nnode b\nshard 1 a\nshard 2 a\nshard 3 b", "a b", "", "a"},
		{"not one to keep", "node a\nnode b\nshard 1 a\nshard 2 a", "a b", "a", "b"},
		{"nobody", "node a", "a", "a", ""},
		{"one that may not host", "node a\nnode b nohost\nnode c\nshard 1 a\nshard 2 c", "a b c", "", "b"},
		{"a stranger", "node a\nshard 1 a", "a z", "", "z"},
		{"the fuller zone", "node a zone=x\nnode b zone=x\nnode c zone=y\nshard 1 c\nshard 2 c\nshard 3 a", "a b c", "", "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := (placement.LeastLeaders{}).Evict(parse(tt.state), nodes(tt.have), nodes(tt.keep)); string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRebalance(t *testing.T) {
	tests := []struct {
		name, state string
		threshold   int
		want        string
	}{
		{"balanced", "node a\nnode b\nshard 1 a b leader=a able=b\nshard 2 a b leader=b able=a", 0, ""},
		{"one apart is balanced", "node a\nnode b\nshard 1 a b leader=a able=b", 0, ""},
		{"two apart", "node a\nnode b\nshard 1 a b leader=a able=b\nshard 2 a b leader=a able=b", 0, "lead 1 a>b"},
		{"below the threshold", "node a\nnode b\nshard 1 a b leader=a able=b\nshard 2 a b leader=a able=b", 3, ""},
		{"nobody is able", "node a\nnode b\nshard 1 a b leader=a\nshard 2 a b leader=a", 0, ""},
		{"not to one that does not lead", "node a\nnode b nolead\nshard 1 a b leader=a able=b\nshard 2 a b leader=a able=b", 0, ""},
		{"pinned stays", "node a\nnode b\nshard 1 a b leader=a able=b pinned\nshard 2 a b leader=a able=b", 0, "lead 2 a>b"},
		{"a chain", "node a\nnode b\nnode c\nshard 1 a b leader=a able=b fixed\nshard 2 a b leader=a able=b fixed\nshard 3 a b leader=a able=b fixed\n" +
			"shard 4 b c leader=b able=c fixed\nshard 5 b c leader=b able=c fixed\nshard 6 b c leader=c able=b fixed", 0, "lead 4 b>c lead 1 a>b"},
		{"a replica, not the leader's", "node a\nnode b\nshard 1 a leader=a\nshard 2 a", 0, "move 2 a>b"},
		{"a replica, the leader's if it must", "node a\nnode b\nshard 1 a leader=a\nshard 2 a leader=a", 0, "move 1 a>b"},
		{"out of a shared zone", "node a zone=x\nnode b zone=x\nnode c zone=y\nshard 1 a b", 0, "move 1 a>c"},
		{"not into a fuller zone", "node a zone=x\nnode b zone=y\nnode c zone=y\nshard 1 a b\nshard 2 a b\nshard 3 a b\nshard 4 a c\nshard 5 a c", 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, m := range (placement.LeastLeaders{Threshold: tt.threshold}).Rebalance(parse(tt.state)) {
				got = append(got, fmt.Sprintf("%s %d %s>%s", map[bool]string{true: "lead", false: "move"}[m.Leader], m.Shard, m.From, m.To))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// cluster places shards one after another, as the coordinator does.
func cluster(hosts, shards, copies int) *placement.State {
	s := &placement.State{}
	for i := range hosts {
		s.Nodes = append(s.Nodes, placement.Node{ID: sharding.NodeID(fmt.Sprintf("n%03d", i)), Hosts: true, Leads: true})
	}
	for i := range shards {
		on := placement.LeastLeaders{}.Allocate(s, nil, copies)
		s.AddShard(placement.Shard{ID: sharding.ShardID(i + 1), Replicas: on, Leader: on[0], Able: slices.Clone(on[1:])})
	}
	return s
}

func apply(s *placement.State, moves []placement.Move) {
	for _, m := range moves {
		sh := &s.Shards[slices.IndexFunc(s.Shards, func(sh placement.Shard) bool { return sh.ID == m.Shard })]
		if m.Leader {
			sh.Able = append(slices.DeleteFunc(slices.Clone(sh.Able), func(n sharding.NodeID) bool { return n == m.To }), m.From)
			sh.Leader = m.To
			continue
		}
		sh.Replicas = append(slices.DeleteFunc(slices.Clone(sh.Replicas), func(n sharding.NodeID) bool { return n == m.From }), m.To)
		sh.Able = slices.DeleteFunc(slices.Clone(sh.Able), func(n sharding.NodeID) bool { return n == m.From })
		if sh.Leader == m.From {
			sh.Leader = m.To
		} else {
			sh.Able = append(sh.Able, m.To)
		}
	}
}

func counts(s *placement.State) (replicas, leaders map[sharding.NodeID]int) {
	replicas, leaders = map[sharding.NodeID]int{}, map[sharding.NodeID]int{}
	for _, n := range s.Nodes {
		replicas[n.ID], leaders[n.ID] = 0, 0
	}
	for _, sh := range s.Shards {
		for _, n := range sh.Replicas {
			replicas[n]++
		}
		leaders[sh.Leader]++
	}
	return replicas, leaders
}

func apart(m map[sharding.NodeID]int) int {
	least, most := -1, 0
	for _, n := range m {
		if least < 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	return most - least
}

// A node that joins a balanced cluster receives its share, and no other replica
// moves.
func TestJoiningNodeReceivesOnlyItsShare(t *testing.T) {
	for _, size := range []struct{ hosts, shards int }{{3, 256}, {3, 5}, {4, 64}, {7, 100}, {3, 1}} {
		s := cluster(size.hosts, size.shards, 3)
		if r, l := counts(s); apart(r) > 1 || apart(l) > 1 {
			t.Fatalf("%+v: allocated unevenly: %v, %v", size, r, l)
		}
		s.Nodes = append(s.Nodes, placement.Node{ID: "new", Hosts: true, Leads: true})
		moved := 0
		for range 1000 {
			moves := placement.LeastLeaders{MaxMoves: 8}.Rebalance(s)
			if len(moves) == 0 {
				break
			}
			for _, m := range moves {
				if !m.Leader {
					moved++
					if m.To != "new" {
						t.Fatalf("%+v: %+v between nodes that were even", size, m)
					}
				}
			}
			apply(s, moves)
		}
		r, l := counts(s)
		if share := 3 * size.shards / (size.hosts + 1); moved != share || apart(r) > 1 {
			t.Errorf("%+v: %d moves for a share of %d, loads %v", size, moved, share, r)
		}
		if apart(l) > 1 {
			t.Errorf("%+v: leaders %v", size, l)
		}
	}
}

// The test compares the strategy with brute force: on small random states, it
// ends with the fewest zone conflicts and the most even leaderships that any
// sequence of moves can reach.
func TestRebalanceAgainstBruteForce(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := randomState(rng)
		before := fmt.Sprintf("%+v", s)
		for round := 0; ; round++ {
			moves := placement.LeastLeaders{MaxMoves: 1 + rng.IntN(4)}.Rebalance(s)
			again := placement.LeastLeaders{MaxMoves: 64}.Rebalance(shuffled(rng, s))
			if all := (placement.LeastLeaders{MaxMoves: 64}).Rebalance(s); !reflect.DeepEqual(again, all) {
				t.Fatalf("seed %d: %s\nthe order of the nodes matters: %v, %v", seed, before, all, again)
			}
			if len(moves) == 0 {
				break
			}
			if round > 200 {
				t.Fatalf("seed %d: %s\nit never ends: %v", seed, before, moves)
			}
			legal(t, seed, s, moves)
			apply(s, moves)
		}
		if got, want := leaderCost(s, -1, nil), bestLeaders(s); got != want {
			t.Fatalf("seed %d: %s\nleaders cost %d, %d is possible: %+v", seed, before, got, want, s)
		}
		if fault := improvable(s); fault != "" {
			t.Fatalf("seed %d: %s\n%s: %+v", seed, before, fault, s)
		}
	}
}

func randomState(rng *rand.Rand) *placement.State {
	s := &placement.State{}
	hosts := 2 + rng.IntN(4)
	for i := range hosts {
		n := placement.Node{ID: sharding.NodeID(fmt.Sprint("n", i)), Hosts: true, Leads: true}
		if rng.IntN(2) == 0 {
			n.Zone = string(rune('x' + rng.IntN(3)))
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range 1 + rng.IntN(6) {
		sh := placement.Shard{ID: sharding.ShardID(i + 1)}
		for _, at := range rng.Perm(hosts)[:min(hosts, 1+rng.IntN(3))] {
			sh.Replicas = append(sh.Replicas, s.Nodes[at].ID)
		}
		sh.Leader, sh.Able = sh.Replicas[0], slices.Clone(sh.Replicas[1:])
		s.Shards = append(s.Shards, sh)
	}
	return s
}

func shuffled(rng *rand.Rand, s *placement.State) *placement.State {
	out := &placement.State{Nodes: slices.Clone(s.Nodes), Shards: slices.Clone(s.Shards)}
	rng.Shuffle(len(out.Nodes), func(i, j int) { out.Nodes[i], out.Nodes[j] = out.Nodes[j], out.Nodes[i] })
	rng.Shuffle(len(out.Shards), func(i, j int) { out.Shards[i], out.Shards[j] = out.Shards[j], out.Shards[i] })
	return out
}

func legal(t *testing.T, seed uint64, s *placement.State, moves []placement.Move) {
	t.Helper()
	seen := map[string]bool{}
	for _, m := range moves {
		sh := s.Shards[slices.IndexFunc(s.Shards, func(sh placement.Shard) bool { return sh.ID == m.Shard })]
		key := fmt.Sprint(m.Shard)
		if seen[key] {
			t.Fatalf("seed %d: two moves of shard %d in one round: %v", seed, m.Shard, moves)
		}
		seen[key] = true
		if m.Leader && (sh.Leader != m.From || !slices.Contains(sh.Able, m.To)) ||
			!m.Leader && (!slices.Contains(sh.Replicas, m.From) || slices.Contains(sh.Replicas, m.To)) {
			t.Fatalf("seed %d: %+v of %+v", seed, m, sh)
		}
	}
}

// leaderCost returns the sum of the squared numbers of leaderships per node if
// node to leads shard at.
func leaderCost(s *placement.State, at int, leaders []sharding.NodeID) (cost int) {
	count := map[sharding.NodeID]int{}
	for i, sh := range s.Shards {
		leader := sh.Leader
		if i <= at {
			leader = leaders[i]
		}
		count[leader]++
	}
	for _, n := range count {
		cost += n * n
	}
	return cost
}

// bestLeaders tries every combination of leaders.
func bestLeaders(s *placement.State) int {
	best := -1
	leaders := make([]sharding.NodeID, len(s.Shards))
	var try func(i int)
	try = func(i int) {
		if i == len(s.Shards) {
			if c := leaderCost(s, i-1, leaders); best < 0 || c < best {
				best = c
			}
			return
		}
		for _, n := range append([]sharding.NodeID{s.Shards[i].Leader}, s.Shards[i].Able...) {
			leaders[i] = n
			try(i + 1)
		}
	}
	try(0)
	return best
}

// improvable tries every single replica move.
func improvable(s *placement.State) string {
	zone := map[sharding.NodeID]string{}
	for _, n := range s.Nodes {
		zone[n.ID] = n.Zone
		if n.Zone == "" {
			zone[n.ID] = "own " + string(n.ID)
		}
	}
	crowd := func(on []sharding.NodeID) (pairs int) {
		for i := range on {
			for j := range i {
				if zone[on[i]] == zone[on[j]] {
					pairs++
				}
			}
		}
		return pairs
	}
	load, _ := counts(s)
	for _, sh := range s.Shards {
		for i, from := range sh.Replicas {
			for _, to := range s.Nodes {
				if slices.Contains(sh.Replicas, to.ID) {
					continue
				}
				moved := slices.Clone(sh.Replicas)
				moved[i] = to.ID
				was, is := crowd(sh.Replicas), crowd(moved)
				if is < was || is == was && load[from]-load[to.ID] >= 2 {
					return fmt.Sprintf("shard %d would be better moved from %s to %s", sh.ID, from, to.ID)
				}
			}
		}
	}
	return ""
}

func BenchmarkRebalance(b *testing.B) {
	s := cluster(5, 1024, 3)
	s.Nodes = append(s.Nodes, placement.Node{ID: "new", Hosts: true, Leads: true})
	b.ReportAllocs()
	for b.Loop() {
		placement.LeastLeaders{}.Rebalance(s)
	}
}
